-- What a datagram means, beyond its encoding: its parts, messages like the one before, and a line about it.

local fields = require("hbroker.fields")
local protobuf = require("hbroker.protobuf")

local DATAGRAM, PUBLISH = fields.messages.Datagram, fields.messages.Publish
-- docs/protocol.md §2.4: what a PUBLISH may have whose next message is an `again`, and how long it may be but for its
-- payload.
local ALIKE = { topic = true, payload = true, publisher = true, sequence = true, published_at_us = true, origin = true }
local MOST_ALIKE = 256
-- The line about a datagram: the fields that tell most, how many packets, how much of a text.
local TELLING = { "topic", "filter", "node", "subtree", "event" }
local MOST_PACKETS, MOST_TEXT = 4, 100

local M = {}

-- The last item of a field that was read, which is the one that counts.
function M.last_of(items, name)
  local found
  for _, item in ipairs(items or {}) do
    if item.last and item.field and item.field.name == name then
      found = item
    end
  end
  return found
end

-- The item of what a packet holds.
local function body_of(packet)
  local found
  for _, item in ipairs(packet.items) do
    if item.field and item.field.is_body then
      found = item
    end
  end
  return found
end

-- Whether the next packet may be an `again`.
local function is_model(packet)
  local body = packet.items[1]
  if #packet.items ~= 1 or not body.field or body.field.name ~= "publish" then
    return false
  end
  local payload = 0
  for _, item in ipairs(body.items) do
    if not item.field or not ALIKE[item.field.name] then
      return false
    elseif item.field.name == "payload" then
      payload = item.value_last - item.value_first + 1
    end
  end
  return packet.value_last - packet.value_first + 1 - payload <= MOST_ALIKE
end

-- The fields of the PUBLISH that an `again` stands for: those of the one before, with its own payload, and the next
-- sequence number.
local function expanded(again, before)
  local items, sequence = {}, { low = 0, high = 0 }
  for _, item in ipairs(before) do
    if item.field.name == "sequence" then
      sequence = item
    elseif item.field.name ~= "payload" then
      items[#items + 1] = item
    end
  end
  local low = (sequence.low + 1) % 2 ^ 32
  local high = low == 0 and (sequence.high + 1) % 2 ^ 32 or sequence.high
  for _, item in ipairs({ { name = "sequence", low = low, high = high }, { name = "payload" } }) do
    item.field, item.first, item.last = PUBLISH.by_name[item.name], again.first, again.last
    item.value_first, item.value_last = again.value_first, again.value_last
    items[#items + 1] = item
  end
  return items
end

-- Gives each `again` the `like` of the PUBLISH that it stands for (§2.4), where there is one.
local function expand(packets)
  local before
  for _, packet in ipairs(packets) do
    local body = packet.items[1]
    local is_again = #packet.items == 1 and body.field and body.field.name == "again"
    if is_again and before then
      body.like = expanded(body, before)
      before = body.like
    else
      before = is_model(packet) and body.items or nil
    end
  end
end

-- One datagram of the items of a train: those up to the next header.
local function new_part(items, problem)
  local part = { items = items, packets = {}, problem = problem }
  for _, item in ipairs(items) do
    if item.field and item.field.name == "packets" and item.items and item.last then
      part.packets[#part.packets + 1] = item
    end
  end
  expand(part.packets)
  return part
end

-- The datagrams in the bytes of `data`: one, or those of a train, which may appear as one (UDP_SEGMENT). No sender
-- repeats the header. If they are malformed, the last one has a `problem`.
function M.read(data)
  local items, problem = protobuf.parse(DATAGRAM, data, 1, #data)
  local parts, current = {}, {}
  for _, item in ipairs(items) do
    if item.field and item.field.name == "header" and #current > 0 then
      parts[#parts + 1], current = new_part(current), {}
    end
    current[#current + 1] = item
  end
  parts[#parts + 1] = new_part(current, problem)
  return parts
end

-- Whether it is not by chance one of hbroker: every sender writes its incarnation, and knows no other fields (§2.2).
function M.is_plausible(part)
  for _, item in ipairs(part.items) do
    if not item.field then
      return false
    end
  end
  local header = M.last_of(part.items, "header")
  local incarnation = header and M.last_of(header.items, "incarnation")
  return not part.problem and incarnation ~= nil and incarnation.low + incarnation.high > 0
end

-- A text for one line: what controls a terminal is left out.
local function line(text)
  text = text:gsub("%c", "?")
  if #text > MOST_TEXT then
    text = text:sub(1, MOST_TEXT):gsub("[\192-\255][\128-\191]*$", "") .. "…"
  end
  return text
end

local function packet_in_words(packet)
  local body = body_of(packet)
  if not body then
    return "empty"
  end
  local items, words = body.like or body.items, { body.field.name:upper() }
  local inner = body.field.name == "authenticated" and M.last_of(items, "packet")
  if inner and inner.items and body_of(inner) then
    return packet_in_words(inner)
  end
  for _, name in ipairs(TELLING) do
    local item = M.last_of(items, name)
    words[#words + 1] = item and item.text and item.text ~= "" and line(item.text) or nil
  end
  local reason, payload = M.last_of(items, "reason"), M.last_of(items, "payload")
  if reason and reason.low and reason.low > 0 then
    words[#words + 1] = reason.field.values[reason.low] or ("reason %d"):format(reason.low)
  end
  if body.field.name == "publish" or body.like then
    words[#words + 1] = ("%d bytes"):format(payload and payload.value_last - payload.value_first + 1 or 0)
  end
  return table.concat(words, " ")
end

-- A part in one line.
function M.in_words(part)
  local words = {}
  for index, packet in ipairs(part.packets) do
    if index > MOST_PACKETS then
      words[#words + 1] = ("and %d more"):format(#part.packets - MOST_PACKETS)
      break
    end
    words[#words + 1] = packet_in_words(packet)
  end
  if part.problem then
    words[#words + 1] = "malformed: " .. part.problem
  elseif #words == 0 then
    words[1] = M.last_of(part.items, "header") and "acknowledgement" or #part.items > 0 and "probe" or "answer to a probe"
  end
  return table.concat(words, " | ")
end

return M
