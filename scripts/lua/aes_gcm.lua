-- AES-128-GCM (FIPS 197, NIST SP 800-38D), to open what was sealed. Nonces have 12 bytes and tags 16.
--
-- Words have 32 bits, the first byte highest. AES uses a table for each byte of a column. GHASH multiplies by
-- the hash key byte by byte, with a table of all products of one byte and the key.

local band, bor, bxor = bit.band, bit.bor, bit.bxor
local lshift, rshift, ror, tobit = bit.lshift, bit.rshift, bit.ror, bit.tobit
local char, concat, floor, rep = string.char, table.concat, math.floor, string.rep

local BLOCK, TAG = 16, 16
local ROUNDS = 10

-- Tables ------------------------------------------------------------------------------------------------------

-- Twice a byte in AES's field.
local function doubled(byte)
  return byte < 128 and 2 * byte or bxor(2 * byte - 256, 0x1b)
end

-- FIPS 197 §5.1.1. 3 generates the field, so its powers are all bytes but 0, and that of 255 less the
-- exponent is the inverse.
local function substitutions()
  local power, exponent, value = {}, {}, 1
  for i = 0, 254 do
    power[i], exponent[value] = value, i
    value = bxor(value, doubled(value))
  end
  local box = {}
  for byte = 0, 255 do
    local inverse = byte == 0 and 0 or power[(255 - exponent[byte]) % 255]
    local twice = inverse * 257 -- A rotation of a byte is a shift of two of it.
    local rotated = bxor(rshift(twice, 7), rshift(twice, 6), rshift(twice, 5), rshift(twice, 4))
    box[byte] = band(bxor(inverse, rotated, 0x63), 255)
  end
  return box
end

local SBOX = substitutions()

-- SubBytes and MixColumns of one byte, for each of the four rows.
local T0, T1, T2, T3 = {}, {}, {}, {}
for byte = 0, 255 do
  local s = SBOX[byte]
  local word = bor(lshift(doubled(s), 24), lshift(s, 16), lshift(s, 8), bxor(doubled(s), s))
  T0[byte], T1[byte], T2[byte], T3[byte] = word, ror(word, 8), ror(word, 16), ror(word, 24)
end

-- One bit further in GHASH's field (SP 800-38D §6.3): the first bit of a block is the lowest power.
local function shifted(a, b, c, d)
  local carry = band(d, 1) == 1 and lshift(0xe1, 24) or 0
  d = bor(rshift(d, 1), lshift(c, 31))
  c = bor(rshift(c, 1), lshift(b, 31))
  b = bor(rshift(b, 1), lshift(a, 31))
  return bxor(rshift(a, 1), carry), b, c, d
end

-- What comes back into the first word when a block is shifted by a byte that ends in these bits.
local RETURNED = {}
for byte = 0, 255 do
  local a, b, c, d = 0, 0, 0, byte
  for _ = 1, 8 do
    a, b, c, d = shifted(a, b, c, d)
  end
  RETURNED[byte] = a
end

-- AES ---------------------------------------------------------------------------------------------------------

local function word_at(data, at)
  local a, b, c, d = data:byte(at, at + 3)
  return bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
end

local function bytes_of(word)
  return rshift(word, 24), band(rshift(word, 16), 255), band(rshift(word, 8), 255), band(word, 255)
end

local function substituted(word)
  local a, b, c, d = bytes_of(word)
  return bor(lshift(SBOX[a], 24), lshift(SBOX[b], 16), lshift(SBOX[c], 8), SBOX[d])
end

-- FIPS 197 §5.2: the words of all round keys, from 0.
local function round_keys(key)
  local words, constant = {}, 1
  for i = 0, 3 do
    words[i] = word_at(key, 4 * i + 1)
  end
  for i = 4, 4 * ROUNDS + 3 do
    local word = words[i - 1]
    if i % 4 == 0 then
      word = bxor(substituted(bit.rol(word, 8)), lshift(constant, 24))
      constant = doubled(constant)
    end
    words[i] = bxor(words[i - 4], word)
  end
  return words
end

-- FIPS 197 §5.1: one column, without and with MixColumns.
local function last_column(w, x, y, z)
  return bor(
    lshift(SBOX[rshift(w, 24)], 24),
    lshift(SBOX[band(rshift(x, 16), 255)], 16),
    lshift(SBOX[band(rshift(y, 8), 255)], 8),
    SBOX[band(z, 255)]
  )
end

local function column(w, x, y, z)
  return bxor(T0[rshift(w, 24)], T1[band(rshift(x, 16), 255)], T2[band(rshift(y, 8), 255)], T3[band(z, 255)])
end

-- The four words of a block, under the round keys `k`.
local function encrypted(k, a, b, c, d)
  a, b, c, d = bxor(a, k[0]), bxor(b, k[1]), bxor(c, k[2]), bxor(d, k[3])
  for i = 4, 4 * ROUNDS - 4, 4 do
    local w, x, y, z = column(a, b, c, d), column(b, c, d, a), column(c, d, a, b), column(d, a, b, c)
    a, b, c, d = bxor(w, k[i]), bxor(x, k[i + 1]), bxor(y, k[i + 2]), bxor(z, k[i + 3])
  end
  local w, x, y, z = last_column(a, b, c, d), last_column(b, c, d, a), last_column(c, d, a, b), last_column(d, a, b, c)
  return bxor(w, k[40]), bxor(x, k[41]), bxor(y, k[42]), bxor(z, k[43])
end

-- GHASH -------------------------------------------------------------------------------------------------------

-- The products of each byte and the hash key: four words each.
local function products(a, b, c, d)
  local first, second, third, fourth = { [0] = 0 }, { [0] = 0 }, { [0] = 0 }, { [0] = 0 }
  local place = 128
  while place >= 1 do
    first[place], second[place], third[place], fourth[place] = a, b, c, d
    a, b, c, d = shifted(a, b, c, d)
    place = floor(place / 2)
  end
  for byte = 1, 255 do
    local low = band(byte, -byte)
    local rest = byte - low
    first[byte] = bxor(first[rest], first[low])
    second[byte] = bxor(second[rest], second[low])
    third[byte] = bxor(third[rest], third[low])
    fourth[byte] = bxor(fourth[rest], fourth[low])
  end
  return { first, second, third, fourth }
end

-- The hash of whole blocks.
local function ghash(tables, data)
  local first, second, third, fourth = tables[1], tables[2], tables[3], tables[4]
  local a, b, c, d = 0, 0, 0, 0
  for at = 1, #data, BLOCK do
    local w, x = bxor(a, word_at(data, at)), bxor(b, word_at(data, at + 4))
    local y, z = bxor(c, word_at(data, at + 8)), bxor(d, word_at(data, at + 12))
    a, b, c, d = 0, 0, 0, 0
    for _, word in ipairs({ z, y, x, w }) do
      for shift = 0, 24, 8 do
        local byte, returned = band(rshift(word, shift), 255), RETURNED[band(d, 255)]
        d = bxor(rshift(d, 8), lshift(c, 24), fourth[byte])
        c = bxor(rshift(c, 8), lshift(b, 24), third[byte])
        b = bxor(rshift(b, 8), lshift(a, 24), second[byte])
        a = bxor(rshift(a, 8), returned, first[byte])
      end
    end
  end
  return a, b, c, d
end

local function padded(data)
  return data .. rep("\0", -#data % BLOCK)
end

-- GCM ---------------------------------------------------------------------------------------------------------

local Cipher = {}
Cipher.__index = Cipher

-- The cipher of a key of 16 bytes.
function Cipher.new(key)
  local keys = round_keys(key)
  return setmetatable({ keys = keys, products = products(encrypted(keys, 0, 0, 0, 0)) }, Cipher)
end

-- What was sealed, or nil if the tag does not match. `header`: the associated data.
function Cipher:open(nonce, sealed, header)
  local length = #sealed - TAG
  if length < 0 then
    return nil
  end
  local n1, n2, n3 = word_at(nonce, 1), word_at(nonce, 5), word_at(nonce, 9)
  local data = padded(sealed:sub(1, length))
  local lengths = { 0, 8 * #header, 0, 8 * length }
  for i, word in ipairs(lengths) do
    lengths[i] = char(bytes_of(tobit(word)))
  end
  local h1, h2, h3, h4 = ghash(self.products, padded(header) .. data .. concat(lengths))
  local m1, m2, m3, m4 = encrypted(self.keys, n1, n2, n3, 1)
  local function differs(hash, mask, at)
    return bxor(hash, mask) ~= word_at(sealed, length + at)
  end
  if differs(h1, m1, 1) or differs(h2, m2, 5) or differs(h3, m3, 9) or differs(h4, m4, 13) then
    return nil
  end
  local blocks = {}
  for at = 1, length, BLOCK do
    local a, b, c, d = encrypted(self.keys, n1, n2, n3, 2 + (at - 1) / BLOCK)
    a, b = bxor(a, word_at(data, at)), bxor(b, word_at(data, at + 4))
    c, d = bxor(c, word_at(data, at + 8)), bxor(d, word_at(data, at + 12))
    blocks[#blocks + 1] = char(bytes_of(a)) .. char(bytes_of(b)) .. char(bytes_of(c)) .. char(bytes_of(d))
  end
  return concat(blocks):sub(1, length)
end

return Cipher
