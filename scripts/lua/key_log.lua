-- Opens sealed datagrams with the secrets that processes have logged (docs/adr/0035-sealed-associations.md), as
-- hbroker/runtime/key_log.py does. A line of the file is one direction of an association:
--
--     SEAL  id of the association (16 digits)  algorithm  secret (64 digits)

local sha256 = require("hbroker.sha256")
local ALGORITHMS = {
  ["AES-128-GCM"] = { cipher = require("hbroker.aes_gcm"), key_bytes = 16 },
  ["ChaCha20-Poly1305"] = { cipher = require("hbroker.chacha20_poly1305"), key_bytes = 32 },
}

local bxor = bit.bxor
local char, floor, max = string.char, math.floor, math.max

local HEADER = 13
-- A datagram says its epoch modulo this.
local EPOCHS = 4
local DATAGRAMS_PER_EPOCH = 2 ^ 22

local function derived(secret, label, length)
  return sha256.expand(secret, "hbroker " .. label, length)
end

local function from_hex(digits)
  return (digits:gsub("%x%x", function(pair)
    return char(tonumber(pair, 16))
  end))
end

-- The number of so many bytes, the highest first.
local function number_at(data, first, last)
  local number = 0
  for at = first, last do
    number = number * 256 + data:byte(at)
  end
  return number
end

-- The keys of one direction. The secret of each epoch makes that of the next.
local Direction = {}
Direction.__index = Direction

function Direction.new(algorithm, secret)
  -- `next`: the number behind the highest one that was opened.
  return setmetatable({ algorithm = algorithm, secrets = { [0] = secret }, keys = {}, epoch = 0, next = 0 }, Direction)
end

-- The cipher of an epoch, and the bytes that are combined with the number of a datagram.
function Direction:key(epoch)
  for known = #self.secrets, epoch - 1 do
    self.secrets[known + 1] = derived(self.secrets[known], "next", 32)
  end
  if not self.keys[epoch] then
    for known in pairs(self.keys) do
      self.keys[known] = math.abs(known - epoch) <= 1 and self.keys[known] or nil
    end
    local secret = self.secrets[epoch]
    local cipher = self.algorithm.cipher.new(derived(secret, "key", 32):sub(1, self.algorithm.key_bytes))
    self.keys[epoch] = { cipher = cipher, iv = derived(secret, "iv", 12) }
  end
  return self.keys[epoch]
end

-- The number whose lower half this is: the one closest to the next expected (RFC 9000 A.3).
function Direction:whole(lower)
  local span = 2 ^ 32
  local candidate = floor(self.next / span) * span + lower
  if candidate + span / 2 <= self.next then
    return candidate + span
  elseif candidate > self.next + span / 2 and candidate >= span then
    return candidate - span
  end
  return candidate
end

-- The epochs that a datagram may be of: near the last, or, if the capture began late, as its number says.
function Direction:epochs(said, number)
  local found, is_known = {}, {}
  for _, first in ipairs({ self.epoch, floor(number / DATAGRAMS_PER_EPOCH) }) do
    for _, epoch in ipairs({ first, first + 1, first - 1 }) do
      if epoch >= 0 and epoch % EPOCHS == said and not is_known[epoch] then
        found[#found + 1], is_known[epoch] = epoch, true
      end
    end
  end
  return found
end

-- What was sealed in a datagram, and its number; nil: it is not of this direction, or was changed.
function Direction:open(datagram)
  local header = datagram:sub(1, HEADER)
  local number = self:whole(number_at(header, 10, 13))
  for _, epoch in ipairs(self:epochs(floor(header:byte(1) / 8) % EPOCHS, number)) do
    local key = self:key(epoch)
    local nonce, rest = { key.iv:byte(1, 12) }, number
    for at = 12, 5, -1 do
      nonce[at] = bxor(nonce[at], rest % 256)
      rest = floor(rest / 256)
    end
    local data = key.cipher:open(char(table.unpack(nonce)), datagram:sub(HEADER + 1), header)
    if data then
      self.epoch, self.next = max(self.epoch, epoch), max(self.next, number + 1)
      return data, number
    end
  end
end

local KeyLog = {}
KeyLog.__index = KeyLog

-- `path`: empty: there is no log.
function KeyLog.new(path)
  return setmetatable({ path = path, offset = 0, directions = {} }, KeyLog)
end

-- Reads the lines that were appended. Another process may be writing the last. Returns why it cannot.
function KeyLog:read()
  local file, why = io.open(self.path, "rb")
  if not file then
    return why
  end
  file:seek("set", self.offset)
  local text = file:read("*a") or ""
  file:close()
  for line in text:gmatch("([^\n]*)\n") do
    self.offset = self.offset + #line + 1
    local id, name, secret = line:match("^%s*SEAL%s+(%x+)%s+(%S+)%s+(%x+)%s*$")
    if ALGORITHMS[name] and #id == 16 and #secret == 64 then
      id = from_hex(id)
      self.directions[id] = self.directions[id] or Direction.new(ALGORITHMS[name], from_hex(secret))
    end
  end
end

-- What was sealed in a datagram, and its number. Or nil, and why it cannot be opened.
function KeyLog:open(datagram)
  if self.path == "" then
    return nil, "there is no key log"
  end
  local id = datagram:sub(2, 9)
  local why = not self.directions[id] and self:read()
  local direction = self.directions[id]
  if not direction then
    return nil, why or "the key log has no key for this association"
  end
  local data, number = direction:open(datagram)
  if not data then
    return nil, "the tag does not match"
  end
  return data, number
end

return KeyLog
