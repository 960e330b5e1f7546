-- The dissector: what Wireshark calls, and what it shows.

local KeyLog = require("hbroker.key_log")
local associations = require("hbroker.associations")
local fields = require("hbroker.fields")
local messages = require("hbroker.messages")

local PORT = 7700
-- How many bytes of opened datagrams are kept: Wireshark asks for the same datagram again and again.
local MOST_KEPT = 32 * 1024 * 1024

local hbroker = Proto("hbroker", "hbroker")

-- Fields ------------------------------------------------------------------------------------------------------

local function association(new, name, ...)
  local field = new("hbroker.association." .. name, name, ...)
  fields.all[#fields.all + 1] = field
  return field
end

-- The fields of an association's datagram (docs/adr/0035-sealed-associations.md), and where they are in it.
local F = {
  kind = association(ProtoField.uint8, "kind", base.HEX, associations.KINDS),
  epoch = association(ProtoField.uint8, "epoch", base.DEC, nil, 0x18),
  to = association(ProtoField.uint64, "to", base.HEX),
  from = association(ProtoField.uint64, "from", base.HEX),
  number = association(ProtoField.uint32, "number", base.DEC),
  whole_number = association(ProtoField.uint64, "whole_number", base.DEC),
  token = association(ProtoField.bytes, "token"),
  offset = association(ProtoField.uint32, "offset", base.DEC),
  acked = association(ProtoField.uint32, "acked", base.DEC),
  tls = association(ProtoField.bytes, "tls"),
  proof = association(ProtoField.bytes, "proof"),
  sealed = association(ProtoField.bytes, "sealed"),
  tag = association(ProtoField.bytes, "tag"),
  unknown = ProtoField.bytes("hbroker.unknown", "unknown field"),
}
fields.all[#fields.all + 1] = F.unknown
hbroker.fields = fields.all

local MALFORMED = ProtoExpert.new("hbroker.malformed", "malformed", expert.group.MALFORMED, expert.severity.ERROR)
local SEALED = ProtoExpert.new("hbroker.unopened", "cannot be decrypted", expert.group.UNDECODED, expert.severity.NOTE)
local CUT = ProtoExpert.new("hbroker.cut", "captured in part", expert.group.UNDECODED, expert.severity.NOTE)
hbroker.experts = { MALFORMED, SEALED, CUT }

hbroker.prefs.key_log = Pref.string(
  "Key log",
  "",
  "The file that processes with HBROKER_KEYLOG wrote. Empty: the one that HBROKER_KEYLOG names where Wireshark runs."
)

-- What is known of a capture ----------------------------------------------------------------------------------

local key_log, seen, kept, kept_bytes

local function forget()
  local path = hbroker.prefs.key_log
  key_log = KeyLog.new(path ~= "" and path or os.getenv("HBROKER_KEYLOG") or "")
  seen, kept, kept_bytes = associations.Seen.new(), {}, 0
end

hbroker.init = forget
hbroker.prefs_changed = forget

-- What was sealed in a datagram: `data` and `number`, or `why` it cannot be opened.
local function opened(datagram)
  local result = kept[datagram]
  if result then
    return result
  end
  local data, number = key_log:open(datagram)
  if not data then
    return { why = number }
  end
  if kept_bytes > MOST_KEPT then
    kept, kept_bytes = {}, 0
  end
  result = { data = data, number = number }
  kept[datagram], kept_bytes = result, kept_bytes + 2 * #datagram
  return result
end

-- Reading -----------------------------------------------------------------------------------------------------

-- One datagram of an association, with its place in the bytes that were captured.
local function read_association(data, first, last)
  local datagram = data:sub(first, last)
  local kind, problem = associations.kind(datagram)
  local found = { kind = kind, problem = problem, first = first, last = last, to = datagram:sub(2, 9) }
  if problem then
    return found
  elseif kind == "sealed" then
    found.opened = opened(datagram)
    found.is_plausible = found.opened.data ~= nil or seen:has(found.to)
  elseif kind == "handshake" then
    found.is_plausible = associations.is_plausible(datagram)
    if found.is_plausible then
      seen:add(datagram:sub(10, 17))
    end
  else
    found.is_plausible = true
  end
  return found
end

-- All that is in the bytes of a datagram, or of a train: datagrams of an association, or parts of `messages`.
local function read(data)
  if not associations.KINDS[data:byte(1)] then
    local parts = messages.read(data)
    return { parts = parts, is_plausible = messages.is_plausible(parts[1]) and not parts[#parts].problem }
  end
  local size, found = associations.size_in_train(data), {}
  for first = 1, #data, size do
    found[#found + 1] = read_association(data, first, math.min(first + size - 1, #data))
  end
  return { associations = found, is_plausible = found[1].is_plausible }
end

-- Showing -----------------------------------------------------------------------------------------------------

-- The bytes of a Tvb from `first` to `last`, both counted from 1.
local function range(tvb, first, last)
  return tvb(first - 1, last - first + 1)
end

local function is_default_shown(field)
  return field.type == "enum" and not field.is_repeated and not field.is_optional
end

local show_items

local VALUE = {
  bool = function(item)
    return item.low + item.high > 0
  end,
  enum = function(item)
    return item.low < 2 ^ 31 and item.low or item.low - 2 ^ 32
  end,
  uint32 = function(item)
    return item.low
  end,
  uint64 = function(item)
    return UInt64.new(item.low, item.high)
  end,
}
VALUE.fixed64 = VALUE.uint64

-- An address in words, behind its name.
local function address_in_words(tvb, items)
  local ip, port = messages.last_of(items, "ip"), messages.last_of(items, "port")
  local bytes = ip and range(tvb, ip.value_first, ip.value_last)
  if bytes and bytes:len() == 4 then
    return (" %s:%d"):format(tostring(bytes:ipv4()), port and port.low or 0)
  elseif bytes and bytes:len() == 16 then
    return (" [%s]:%d"):format(tostring(bytes:ipv6()), port and port.low or 0)
  end
  return ""
end

-- Shows one item. `generated`: the datagram does not say it in these words.
local function show_item(tree, tvb, item, generated)
  local field = item.field
  local here = range(tvb, item.first, item.last or tvb:len())
  local shown
  if not field or not item.last and not item.items then
    shown = tree:add(field and field.kind == "message" and field.shown or F.unknown, here)
  elseif item.items and not field.serialised and field.kind == "varint" then
    for _, value in ipairs(item.items) do
      show_item(tree, tvb, value, generated)
    end
  elseif VALUE[field.type] then
    shown = tree:add(field.shown, here, VALUE[field.type](item))
  elseif field.kind == "string" then
    shown = tree:add(field.shown, here, (item.text:gsub("\0", "␀"))) -- Wireshark's texts end at a NUL.
  elseif field.kind == "bytes" then
    shown = tree:add(field.shown, range(tvb, item.value_first, item.value_last))
  else
    shown = tree:add(field.shown, here)
    if field.of == "Address" then
      shown:append_text(address_in_words(tvb, item.items))
    end
  end
  if generated and shown then
    shown:set_generated()
  end
  if item.items and shown then
    show_items(shown, tvb, item.items, field.message or field.serialised, generated)
  end
  if item.like then
    show_items(shown, tvb, item.like, fields.messages.Publish, true)
  end
  if item.problem then
    shown:add_proto_expert_info(MALFORMED, item.problem)
  end
end

-- Shows the items of a message. An enum that is absent has the value 0, for which users filter, too.
function show_items(tree, tvb, items, message, generated)
  local is_there = {}
  for _, item in ipairs(items) do
    show_item(tree, tvb, item, generated)
    is_there[item.field or ""] = true
  end
  for _, field in ipairs(message.fields) do
    if is_default_shown(field) and not is_there[field] then
      tree:add(field.shown, 0):set_generated()
    end
  end
end

-- Shows the datagrams of protobuf in a Tvb.
local function show_parts(tree, tvb, parts)
  local words = {}
  for _, part in ipairs(parts) do
    local first = part.items[1] and part.items[1].first or 1
    local last = #part.items > 0 and part.items[#part.items].last or tvb:len()
    local shown = tree:add(hbroker, range(tvb, first, last), "datagram")
    show_items(shown, tvb, part.items, fields.messages.Datagram)
    if part.problem then
      shown:add_proto_expert_info(MALFORMED, part.problem)
    end
    words[#words + 1] = messages.in_words(part)
  end
  return table.concat(words, " || ")
end

-- Shows what was sealed, or why it is not known.
local function show_sealed(tree, tvb, found)
  tree:add(F.epoch, tvb(0, 1))
  tree:add(F.to, tvb(1, 8))
  tree:add(F.number, tvb(9, 4))
  tree:add(F.sealed, tvb(13, tvb:len() - 29))
  tree:add(F.tag, tvb(tvb:len() - 16, 16))
  local inner = found.opened
  if not inner.data then
    tree:add_proto_expert_info(SEALED, "cannot be decrypted: " .. inner.why)
    return ("sealed for %s, %d bytes, cannot be decrypted"):format(tvb(1, 8), tvb:len())
  end
  local number = inner.number
  tree:add(F.whole_number, tvb(9, 4), UInt64.new(number % 2 ^ 32, math.floor(number / 2 ^ 32))):set_generated()
  if inner.data == "" then
    return "answer to a probe"
  end
  return show_parts(tree, ByteArray.new(inner.data, true):tvb("Decrypted"), messages.read(inner.data))
end

local function show_handshake(tree, tvb)
  local token_length = tvb(17, 1):uint()
  tree:add(F.to, tvb(1, 8))
  tree:add(F.from, tvb(9, 8))
  if token_length > 0 then
    tree:add(F.token, tvb(18, token_length))
  end
  tree:add(F.offset, tvb(18 + token_length, 4))
  tree:add(F.acked, tvb(22 + token_length, 4))
  local length = tvb:len() - 26 - token_length
  if length > 0 then
    tree:add(F.tls, tvb(26 + token_length, length))
  end
  return ("handshake, %d bytes"):format(length)
end

-- Shows one datagram of an association.
local function show_association(tree, tvb, found)
  local shown = tree:add(hbroker, tvb(), found.kind)
  shown:add(F.kind, tvb(0, 1))
  if found.problem then
    shown:add_proto_expert_info(MALFORMED, found.problem)
    return "malformed: " .. found.problem
  elseif found.kind == "sealed" then
    return show_sealed(shown, tvb, found)
  elseif found.kind == "handshake" then
    return show_handshake(shown, tvb)
  elseif found.kind == "retry" then
    shown:add(F.to, tvb(1, 8))
    shown:add(F.token, tvb(9))
  else
    shown:add(F.proof, tvb(1))
  end
  return found.kind
end

-- What Wireshark calls ----------------------------------------------------------------------------------------

local function show(tvb, pinfo, tree, content)
  pinfo.cols.protocol = "HBROKER"
  if content.parts then
    pinfo.cols.info = show_parts(tree, tvb, content.parts)
    return
  end
  local words = {}
  for _, found in ipairs(content.associations) do
    words[#words + 1] = show_association(tree, range(tvb, found.first, found.last):tvb(), found)
  end
  pinfo.cols.info = table.concat(words, " || ")
end

-- A datagram of a port or a conversation of hbroker.
function hbroker.dissector(tvb, pinfo, tree)
  if tvb:len() < tvb:reported_len() or pinfo.in_error_pkt then
    pinfo.cols.protocol = "HBROKER"
    tree:add(hbroker, tvb()):add_proto_expert_info(CUT)
  elseif tvb:len() > 0 then
    show(tvb, pinfo, tree, read(tvb:raw()))
  end
  return tvb:len()
end

-- Any other datagram: recognised by its content.
hbroker:register_heuristic("udp", function(tvb, pinfo, tree)
  if tvb:len() == 0 or tvb:len() < tvb:reported_len() or pinfo.in_error_pkt then
    return false
  end
  local content = read(tvb:raw())
  if not content.is_plausible then
    return false
  end
  pinfo.conversation = hbroker
  show(tvb, pinfo, tree, content)
  return true
end)

DissectorTable.get("udp.port"):add(PORT, hbroker)
