-- SHA-256 (FIPS 180-4), HMAC (RFC 2104), and the first block of HKDF-Expand (RFC 5869).

local band, bnot, bxor = bit.band, bit.bnot, bit.bxor
local ror, rshift, tobit = bit.ror, bit.rshift, bit.tobit
local char, floor, rep = string.char, math.floor, string.rep
local unpack = table.unpack

local BLOCK = 64
local OUTER, INNER = 0x5c, 0x36

-- The first 32 bits of the fractional part of a root of each of the first primes.
local function roots(count, exponent)
  local words, number = {}, 2
  while #words < count do
    local is_prime = true
    for divisor = 2, floor(number ^ 0.5) do
      is_prime = is_prime and number % divisor ~= 0
    end
    if is_prime then
      local root = number ^ exponent
      words[#words + 1] = tobit(floor((root - floor(root)) * 2 ^ 32))
    end
    number = number + 1
  end
  return words
end

local START = roots(8, 1 / 2)
local ROUND = roots(64, 1 / 3)

-- Four bytes of a word, the highest first.
local function bytes_of(word)
  return char(rshift(word, 24), band(rshift(word, 16), 255), band(rshift(word, 8), 255), band(word, 255))
end

local function words_of(block)
  local w = {}
  for i = 1, 16 do
    local a, b, c, d = block:byte(4 * i - 3, 4 * i)
    w[i] = tobit(a * 2 ^ 24 + b * 2 ^ 16 + c * 2 ^ 8 + d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[i] = tobit(w[i - 16] + s0 + w[i - 7] + s1)
  end
  return w
end

-- FIPS 180-4 §6.2.2: works one block into the state.
local function compress(state, block)
  local w = words_of(block)
  local a, b, c, d, e, f, g, h = unpack(state)
  for i = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local t1 = h + s1 + bxor(band(e, f), band(bnot(e), g)) + ROUND[i] + w[i]
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local t2 = s0 + bxor(band(a, b), band(a, c), band(b, c))
    h, g, f, e, d, c, b, a = g, f, e, tobit(d + t1), c, b, a, tobit(t1 + t2)
  end
  for i, word in ipairs({ a, b, c, d, e, f, g, h }) do
    state[i] = tobit(state[i] + word)
  end
end

local M = {}

-- The 32 bytes of the digest.
function M.digest(data)
  local length = #data
  data = data .. "\128" .. rep("\0", (55 - length) % BLOCK) .. rep("\0", 4) .. bytes_of(tobit(8 * length))
  local state = { unpack(START) }
  for at = 1, #data, BLOCK do
    compress(state, data:sub(at, at + BLOCK - 1))
  end
  for i, word in ipairs(state) do
    state[i] = bytes_of(word)
  end
  return table.concat(state)
end

-- `key`: of at most 64 bytes.
function M.hmac(key, data)
  local function padded(with)
    local bytes = { (key .. rep("\0", BLOCK - #key)):byte(1, BLOCK) }
    for i, byte in ipairs(bytes) do
      bytes[i] = char(bxor(byte, with))
    end
    return table.concat(bytes)
  end
  return M.digest(padded(OUTER) .. M.digest(padded(INNER) .. data))
end

-- HKDF-Expand of `secret` for `info`: at most 32 bytes, the first block.
function M.expand(secret, info, length)
  return M.hmac(secret, info .. "\1"):sub(1, length)
end

return M
