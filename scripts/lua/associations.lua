-- The datagrams of associations, around what is sealed in them (docs/adr/0035-sealed-associations.md):
--
--     sealed       kind and epoch (1)  to (8)  number (4)                      sealed bytes, tag (16)
--     handshake    kind (1)  to (8)  from (8)  token length (1), token  offset (4)  acked (4)  bytes of TLS
--     retry        kind (1)  to (8)  token (21)
--     reset        kind (1)  proof (16)
--
-- No datagram of protobuf begins with one of these kinds.

local KINDS = { [0x27] = "handshake", [0x2f] = "retry", [0x37] = "reset" }
for epoch = 0, 3 do
  KINDS[0x07 + 8 * epoch] = "sealed"
end
local LEAST = { sealed = 29, handshake = 26, retry = 30, reset = 17 }
local MOST = { retry = 30, reset = 17 }
local TOKEN_LENGTHS = { [0] = true, [21] = true }
local MOST_OFFSET = 32 * 1024
-- How many associations are remembered, twice.
local REMEMBERED = 50000

local M = { KINDS = KINDS }

-- The kind of a datagram; nil: it is of no association. And why it is malformed, if it is.
function M.kind(datagram)
  local kind = KINDS[datagram:byte(1)]
  if not kind then
    return nil
  elseif #datagram < LEAST[kind] then
    return kind, kind .. " is too short"
  elseif #datagram > (MOST[kind] or #datagram) then
    return kind, kind .. " is too long"
  elseif kind == "handshake" and #datagram < LEAST.handshake + datagram:byte(18) then
    return kind, "handshake.token is longer than the datagram"
  end
  return kind
end

-- Whether a handshake is not by chance one: other protocols have datagrams that begin with the same byte.
function M.is_plausible(handshake)
  local token_length = handshake:byte(18)
  local a, b, c, d = handshake:byte(19 + token_length, 22 + token_length)
  return handshake:sub(10, 17) ~= ("\0"):rep(8)
    and TOKEN_LENGTHS[token_length] ~= nil
    and ((a * 256 + b) * 256 + c) * 256 + d <= MOST_OFFSET
end

-- The size of each datagram in a train but the last. A sender has the kernel split a train of datagrams of one size
-- (UDP_SEGMENT), and a capture on its host may show the train. All of them begin with the same id, which is random.
function M.size_in_train(data)
  local kind = KINDS[data:byte(1)]
  if kind ~= "sealed" and kind ~= "handshake" then
    return #data
  end
  local id = data:sub(2, kind == "sealed" and 9 or 17)
  local at = data:find(id, 2 + LEAST[kind], true)
  if not at then
    return #data
  end
  local size = at - 2
  for first = 1, #data, size do
    local is_next = KINDS[data:byte(first)] == kind and data:sub(first + 1, first + #id) == id
    if not is_next then
      return #data
    end
  end
  return size
end

-- The ids of the associations whose handshakes were seen; of very many only the last.
local Seen = {}
Seen.__index = Seen

function Seen.new()
  return setmetatable({ newer = {}, older = {}, count = 0 }, Seen)
end

function Seen:add(id)
  if self:has(id) then
    return
  elseif self.count == REMEMBERED then
    self.newer, self.older, self.count = {}, self.newer, 0
  end
  self.newer[id], self.count = true, self.count + 1
end

function Seen:has(id)
  return self.newer[id] or self.older[id] or false
end

M.Seen = Seen

return M
