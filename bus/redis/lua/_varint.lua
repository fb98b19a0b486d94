local function varint(number)
  if number < 128 then
    return string.char(number)
  end
  if number < 16384 then
    return string.char(number % 128 + 128, math.floor(number / 128))
  end
  local bytes = {}
  while number > 127 do
    local low = number % 128
    bytes[#bytes + 1] = string.char(low + 128)
    number = (number - low) / 128
  end
  bytes[#bytes + 1] = string.char(number)
  return table.concat(bytes)
end
