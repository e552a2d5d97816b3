package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// SumSize is what the checksum of a table that is Summed adds to a value, bytes: a codec that leaves room for it spares a copy.
const SumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errSum   = errors.New("the checksum does not match")
	errOrder = errors.New("rows are out of order")
)

// sum is the CRC-32C of a key and a value: a row in the place of another is none either.
func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// AddSum is the value with its checksum behind it, for who writes a row past the table: the other way round from CutSum.
func AddSum(key, value []byte) (row []byte) {
	return binary.LittleEndian.AppendUint32(value, sum(key, value))
}

// CutSum takes the checksum off a row of a table that is Summed, for who reads its bytes past the table.
func CutSum(key, row []byte) (value []byte, err error) {
	n := len(row) - SumSize
	if n < 0 || binary.LittleEndian.Uint32(row[n:]) != sum(key, row[:n]) {
		return nil, errSum
	}
	return row[:n:n], nil
}
