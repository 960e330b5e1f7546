-- The schema, with what the parser and Wireshark need: each field's `kind` and `message`, and its field in Wireshark,
-- `hbroker.<message>.<field>`. The schema is generated from packet.proto.

local schema = require("hbroker.schema")

local WIRE_TYPES = { varint = 0, fixed64 = 1, string = 2, bytes = 2, message = 2 }
local KINDS = { bool = "varint", enum = "varint", uint32 = "varint", uint64 = "varint" }

local M = { messages = schema.messages, all = {} }

-- ProtoField takes the description at another place for each type.
local NEW = {
  bool = function(abbreviation, field)
    return ProtoField.bool(abbreviation, field.name, base.NONE, nil, nil, field.about)
  end,
  bytes = function(abbreviation, field)
    return ProtoField.bytes(abbreviation, field.name, base.NONE, field.about)
  end,
  enum = function(abbreviation, field)
    return ProtoField.int32(abbreviation, field.name, base.DEC, schema.enums[field.of], nil, field.about)
  end,
  fixed64 = function(abbreviation, field)
    return ProtoField.uint64(abbreviation, field.name, base.HEX, nil, nil, field.about)
  end,
  message = function(abbreviation, field)
    return ProtoField.none(abbreviation, field.name, field.about)
  end,
  string = function(abbreviation, field)
    return ProtoField.string(abbreviation, field.name, base.NONE, field.about)
  end,
  uint32 = function(abbreviation, field)
    return ProtoField.uint32(abbreviation, field.name, base.DEC, nil, nil, field.about)
  end,
  uint64 = function(abbreviation, field)
    return ProtoField.uint64(abbreviation, field.name, base.DEC, nil, nil, field.about)
  end,
}

for _, message in pairs(M.messages) do
  message.by_tag, message.by_name = {}, {}
  for _, field in ipairs(message.fields) do
    field.kind = KINDS[field.type] or field.type
    field.message = field.kind == "message" and M.messages[field.of] or nil
    field.serialised = field.kind == "bytes" and M.messages[field.of] or nil
    field.values = schema.enums[field.of]
    field.shown = NEW[field.type](("hbroker.%s.%s"):format(message.name, field.name), field)
    M.all[#M.all + 1] = field.shown
    message.by_name[field.name] = field
    message.by_tag[8 * field.number + WIRE_TYPES[field.kind]] = field
    if field.is_repeated and field.kind == "varint" then
      message.by_tag[8 * field.number + 2] = field -- packed
    end
  end
end

return M
