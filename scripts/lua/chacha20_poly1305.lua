-- ChaCha20-Poly1305 (RFC 8439), to open what was sealed. Nonces have 12 bytes and tags 16.
--
-- Words have 32 bits, the first byte lowest. Poly1305 computes with limbs of 22 bits: a sum of their products
-- stays below 2^53, up to which a number of Lua 5.2 is exact.

local bxor, rol, tobit = bit.bxor, bit.rol, bit.tobit
local char, concat, floor, rep = string.char, table.concat, math.floor, string.rep

local BLOCK, TAG = 64, 16
local LIMB, TOP = 2 ^ 22, 2 ^ 20
-- "expand 32-byte k"
local CONSTANTS = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 }

-- A word as a number from 0 to 2^32 - 1.
local function word_at(data, at)
  local a, b, c, d = data:byte(at, at + 3)
  return a + b * 2 ^ 8 + c * 2 ^ 16 + d * 2 ^ 24
end

local function bytes_of(word)
  word = word % 2 ^ 32
  return word % 256, floor(word / 2 ^ 8) % 256, floor(word / 2 ^ 16) % 256, floor(word / 2 ^ 24)
end

-- ChaCha20 ----------------------------------------------------------------------------------------------------

-- RFC 8439 §2.1
local function quarter(s, a, b, c, d)
  local va, vb, vc, vd = s[a], s[b], s[c], s[d]
  va = tobit(va + vb)
  vd = rol(bxor(vd, va), 16)
  vc = tobit(vc + vd)
  vb = rol(bxor(vb, vc), 12)
  va = tobit(va + vb)
  vd = rol(bxor(vd, va), 8)
  vc = tobit(vc + vd)
  vb = rol(bxor(vb, vc), 7)
  s[a], s[b], s[c], s[d] = va, vb, vc, vd
end

-- RFC 8439 §2.3: the words of one block.
local function block(key, counter, nonce)
  local start = { CONSTANTS[1], CONSTANTS[2], CONSTANTS[3], CONSTANTS[4] }
  for at = 1, 29, 4 do
    start[#start + 1] = word_at(key, at)
  end
  start[13], start[14], start[15], start[16] = counter, word_at(nonce, 1), word_at(nonce, 5), word_at(nonce, 9)
  local s = {}
  for i, word in ipairs(start) do
    s[i] = tobit(word)
  end
  for _ = 1, 10 do
    quarter(s, 1, 5, 9, 13)
    quarter(s, 2, 6, 10, 14)
    quarter(s, 3, 7, 11, 15)
    quarter(s, 4, 8, 12, 16)
    quarter(s, 1, 6, 11, 16)
    quarter(s, 2, 7, 12, 13)
    quarter(s, 3, 8, 9, 14)
    quarter(s, 4, 5, 10, 15)
  end
  for i = 1, 16 do
    s[i] = tobit(s[i] + start[i])
  end
  return s
end

local function stream(key, nonce, data)
  local parts = {}
  for at = 1, #data, BLOCK do
    local chunk = data:sub(at, at + BLOCK - 1)
    local whole = chunk .. rep("\0", BLOCK - #chunk)
    local words = {}
    for i, word in ipairs(block(key, (at - 1) / BLOCK + 1, nonce)) do
      words[i] = char(bytes_of(bxor(word, tobit(word_at(whole, 4 * i - 3)))))
    end
    parts[#parts + 1] = concat(words):sub(1, #chunk)
  end
  return concat(parts)
end

-- Poly1305 ----------------------------------------------------------------------------------------------------

-- Four words, and what stands above them, as six limbs.
local function limbs(w1, w2, w3, w4, above)
  return {
    w1 % 2 ^ 22,
    floor(w1 / 2 ^ 22) + w2 % 2 ^ 12 * 2 ^ 10,
    floor(w2 / 2 ^ 12) + w3 % 2 ^ 2 * 2 ^ 20,
    floor(w3 / 2 ^ 2) % 2 ^ 22,
    floor(w3 / 2 ^ 24) + w4 % 2 ^ 14 * 2 ^ 8,
    floor(w4 / 2 ^ 14) + above * 2 ^ 18,
  }
end

-- Brings each limb below 2^22, and the last below 2^20. 2^130 is 5, in the field of 2^130 - 5.
local function carry(h)
  for i = 1, 5 do
    local over = floor(h[i] / LIMB)
    h[i], h[i + 1] = h[i] - over * LIMB, h[i + 1] + over
  end
  local over = floor(h[6] / TOP)
  h[6], h[1] = h[6] - over * TOP, h[1] + 5 * over
end

-- The product of two numbers, with all limbs but the first below 2^22. 2^132 is 20.
local function product(h, r)
  local out = { 0, 0, 0, 0, 0, 0 }
  for i = 1, 6 do
    for j = 1, 6 do
      local at, term = i + j - 1, h[i] * r[j]
      if at > 6 then
        at, term = at - 6, 20 * term
      end
      out[at] = out[at] + term
    end
  end
  carry(out)
  carry(out)
  return out
end

-- The words of the key of 32 bytes: r without the bits that RFC 8439 §2.5 clears, and s.
local function split_key(words)
  local cleared = { 0x0fffffff, 0x0ffffffc, 0x0ffffffc, 0x0ffffffc }
  local r, s = {}, {}
  for i = 1, 4 do
    r[i] = bit.band(words[i], cleared[i]) % 2 ^ 32
    s[i] = words[i + 4] % 2 ^ 32
  end
  return limbs(r[1], r[2], r[3], r[4], 0), s
end

-- RFC 8439 §2.5. The data are whole blocks.
local function poly1305(words, data)
  local r, s = split_key(words)
  local h = { 0, 0, 0, 0, 0, 0 }
  for at = 1, #data, 16 do
    local w1, w2 = word_at(data, at), word_at(data, at + 4)
    local m = limbs(w1, w2, word_at(data, at + 8), word_at(data, at + 12), 1)
    for i = 1, 6 do
      m[i] = m[i] + h[i]
    end
    h = product(m, r)
  end
  carry(h)
  -- What is 2^130 - 5 or more is less by that: then 5 more reaches 2^130.
  local reduced = { h[1] + 5, h[2], h[3], h[4], h[5], h[6] }
  for i = 1, 5 do
    local over = floor(reduced[i] / LIMB)
    reduced[i], reduced[i + 1] = reduced[i] - over * LIMB, reduced[i + 1] + over
  end
  if reduced[6] >= TOP then
    h = reduced
    h[6] = h[6] - TOP
  end
  local sums = {
    h[1] + h[2] % 2 ^ 10 * 2 ^ 22,
    floor(h[2] / 2 ^ 10) + h[3] % 2 ^ 20 * 2 ^ 12,
    floor(h[3] / 2 ^ 20) + h[4] * 2 ^ 2 + h[5] % 2 ^ 8 * 2 ^ 24,
    floor(h[5] / 2 ^ 8) + h[6] % 2 ^ 18 * 2 ^ 14,
  }
  local over = 0
  for i = 1, 4 do
    local sum = sums[i] + s[i] + over
    over = floor(sum / 2 ^ 32)
    sums[i] = char(bytes_of(sum))
  end
  return concat(sums)
end

local function padded(data)
  return data .. rep("\0", -#data % 16)
end

local Cipher = {}
Cipher.__index = Cipher

-- The cipher of a key of 32 bytes.
function Cipher.new(key)
  return setmetatable({ key = key }, Cipher)
end

-- What was sealed, or nil if the tag does not match. `header`: the associated data.
function Cipher:open(nonce, sealed, header)
  local length = #sealed - TAG
  if length < 0 then
    return nil
  end
  local data = sealed:sub(1, length)
  local lengths = { #header, 0, length, 0 }
  for i, word in ipairs(lengths) do
    lengths[i] = char(bytes_of(word))
  end
  local tag = poly1305(block(self.key, 0, nonce), padded(header) .. padded(data) .. concat(lengths))
  return tag == sealed:sub(length + 1) and stream(self.key, nonce, data) or nil
end

return Cipher
