-- Protobuf's encoding (proto3): which fields stand where in a message. It takes what upb takes, the parser below
-- Python's protobuf, and refuses the rest, as nodes do (docs/protocol.md §2.1).
--
-- The result is a tree of items. An item is one occurrence of a field:
--
--     field                      of the schema; nil: the message has no field with this number and wire type
--     first, last                where it is in the data, with its tag, counted from 1
--     value_first, value_last    where its value is
--     low, high                  a number: its lower and upper 32 bits, neither of them negative
--     text                       a string
--     items                      what is in a message, or in a packed field
--     problem                    of a serialised message within: why it was refused
--
-- What was being read when a message was refused has no `last`, and its value may be missing.

local floor = math.floor

local VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = 0, 1, 2, 3, 4, 5
-- How deep messages and groups may nest in a message.
local MOST_DEPTH = 100
-- How many serialised messages are opened within one another.
local MOST_SERIALISED = 3

local M = {}

-- Reads `data` from `at` to `last`. `trail`: the names of the fields in which it is.
local Reader = {}
Reader.__index = Reader

local function refuse(what)
  error({ what = what }, 0)
end

-- The halves of a varint of at most `most` bytes. Bits beyond the 64th are dropped.
function Reader:varint(most)
  local low, high = 0, 0
  for index = 0, most - 1 do
    if self.at > self.last then
      refuse("ends within a number")
    end
    local byte = self.data:byte(self.at)
    local bits = byte % 128
    self.at = self.at + 1
    if index < 4 then
      low = low + bits * 2 ^ (7 * index)
    elseif index == 4 then
      low, high = low + bits % 16 * 2 ^ 28, floor(bits / 16)
    else
      high = (high + bits * 2 ^ (7 * index - 32)) % 2 ^ 32
    end
    if byte < 128 then
      return low, high
    end
  end
  refuse("has a number that is too long")
end

-- A tag or a length: 32 bits, in at most 5 bytes.
function Reader:short()
  local low, high = self:varint(5)
  if high > 0 then
    refuse("has a tag or a length that is too large")
  end
  return low
end

function Reader:skip(bytes)
  if self.at + bytes - 1 > self.last then
    refuse("is longer than what it is in")
  end
  self.at = self.at + bytes
end

-- Skips the value of a field. (In a group even the field number 0 is accepted.)
function Reader:skip_value(number, wire_type, depth)
  if wire_type == VARINT then
    self:varint(10)
  elseif wire_type == FIXED64 then
    self:skip(8)
  elseif wire_type == LENGTH_DELIMITED then
    self:skip(self:short())
  elseif wire_type == START_GROUP then
    self:skip_group(number, depth - 1)
  elseif wire_type == FIXED32 then
    self:skip(4)
  else
    refuse("has a wire type that protobuf has not")
  end
end

function Reader:skip_group(number, depth)
  if depth < 0 then
    refuse("is nested too deep")
  end
  while true do
    local tag = self:short()
    local inner, wire_type = floor(tag / 8), tag % 8
    if wire_type == END_GROUP and inner == number then
      return
    end
    self:skip_value(inner, wire_type, depth)
  end
end

local function word_at(data, at)
  local a, b, c, d = data:byte(at, at + 3)
  return a + b * 2 ^ 8 + c * 2 ^ 16 + d * 2 ^ 24
end

-- Whether a text is UTF-8 (RFC 3629): no overlong form, no surrogate, nothing above U+10FFFF.
local function is_utf8(text)
  local at = text:find("[\128-\255]")
  while at do
    local first, second = text:byte(at, at + 1)
    local more = first < 0xc2 and 0 or first < 0xe0 and 1 or first < 0xf0 and 2 or first < 0xf5 and 3 or 0
    if more == 0 or not text:find("^" .. ("[\128-\191]"):rep(more), at + 1) then
      return false
    end
    local is_overlong = first == 0xe0 and second < 0xa0 or first == 0xf0 and second < 0x90
    local is_beyond = first == 0xed and second > 0x9f or first == 0xf4 and second > 0x8f
    if is_overlong or is_beyond then
      return false
    end
    at = text:find("[\128-\255]", at + more + 1)
  end
  return true
end

-- Reads a value of so many bytes into its item.
function Reader:delimited(item, length, depth)
  local kind, outer = item.field.kind, self.last
  item.value_first = self.at
  self:skip(length)
  item.value_last = self.at - 1
  self.at, self.last = item.value_first, item.value_last
  if kind == "message" then
    if depth == 0 then
      refuse("is nested too deep")
    end
    item.items = {}
    self:message(item.field.message, item.items, depth - 1)
  elseif kind == "varint" then
    item.items = {}
    while self.at <= self.last do
      local value = { field = item.field, first = self.at, value_first = self.at }
      value.low, value.high = self:varint(10)
      value.last, value.value_last = self.at - 1, self.at - 1
      item.items[#item.items + 1] = value
    end
  elseif kind == "string" then
    local text = self.data:sub(self.at, self.last)
    if not is_utf8(text) then
      refuse("is not UTF-8")
    end
    item.text = text
  elseif item.field.serialised and self.serialised < MOST_SERIALISED then
    item.items, item.problem =
      M.parse(item.field.serialised, self.data, self.at, self.last, self.serialised + 1)
  end
  self.at, self.last = item.value_last + 1, outer
end

-- Reads a value into its item.
function Reader:value(item, wire_type, depth)
  if wire_type == VARINT then
    item.value_first = self.at
    item.low, item.high = self:varint(10)
    item.value_last = self.at - 1
  elseif wire_type == FIXED64 then
    item.value_first = self.at
    self:skip(8)
    item.value_last = self.at - 1
    item.low, item.high = word_at(self.data, item.value_first), word_at(self.data, item.value_first + 4)
  else
    self:delimited(item, self:short(), depth)
  end
end

-- Reads a message up to `last`, and appends its items.
function Reader:message(message, items, depth)
  while self.at <= self.last do
    local item = { first = self.at }
    items[#items + 1] = item
    local tag = self:short()
    local number, wire_type = floor(tag / 8), tag % 8
    if number == 0 then
      refuse("has a field with the number 0")
    end
    item.field = message.by_tag[tag]
    self.trail[#self.trail + 1] = item.field and item.field.name or "field " .. number
    if item.field then
      self:value(item, wire_type, depth)
    else
      self:skip_value(number, wire_type, depth)
    end
    item.last = self.at - 1
    self.trail[#self.trail] = nil
  end
end

-- The items of a message of the schema in the bytes of `data` from `first` to `last`. If protobuf refuses it: the items
-- before, and why, as a text with the names of the fields.
function M.parse(message, data, first, last, serialised)
  local reader = { data = data, at = first, last = last, trail = { message.name }, serialised = serialised or 0 }
  local items = {}
  setmetatable(reader, Reader)
  local is_read, refusal = pcall(reader.message, reader, message, items, MOST_DEPTH)
  if is_read then
    return items
  elseif type(refusal) ~= "table" then
    error(refusal, 0)
  end
  return items, table.concat(reader.trail, ".") .. " " .. refusal.what
end

return M
