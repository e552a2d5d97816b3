package record

import "encoding/binary"

// cut takes pieces off the front of b. After one that b is too short for, short is set and every piece is empty.
type cut struct {
	b     []byte
	short bool
}

// take is the next n bytes, nil if there are fewer.
func (c *cut) take(n int) []byte {
	if n > len(c.b) {
		c.short, c.b = true, nil
		return nil
	}
	head := c.b[:n:n]
	c.b = c.b[n:]
	return head
}

func (c *cut) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cut) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cut) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
