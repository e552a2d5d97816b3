package record

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/engines"
)

// FormatError says that bytes are not what they are taken for. Nothing that holds them can be trusted.
type FormatError struct {
	What   string // "record", "batch header", ...
	Reason error
}

func (e *FormatError) Error() string { return fmt.Sprintf("not a %s: %v", e.What, e.Reason) }

// Unwrap is the reason.
func (e *FormatError) Unwrap() error { return e.Reason }

var (
	errLength  = errors.New("wrong length")
	errVersion = errors.New("unknown version: written by a newer program, or no such thing at all")
	errCRC     = errors.New("the checksum does not match")
	errParts   = errors.New("an unknown part, or an empty one")
)

// Decode reads what Append wrote, with a *FormatError for anything else. It keeps nothing of b.
func Decode(b []byte) (Record, error) {
	var r Record
	err := r.Decode(b)
	return r, err
}

// Decode is the function Decode into r. It reuses the memory of r's Images and Results, so that a walk over many records allocates only
// their texts. After an error r is of no use but for another Decode.
func (r *Record) Decode(b []byte) error {
	if err := r.decode(b); err != nil {
		return &FormatError{"record", err}
	}
	return nil
}

func (r *Record) decode(b []byte) error {
	body, err := sealed(b, headSize, MaxRecord, version2)
	if err != nil {
		return err
	}
	*r = Record{Images: r.Images[:0], Results: r.Results[:0]}
	bits := r.readHead(body)
	rest := cut{b: body[headSize:]}
	if bits&^allParts != 0 {
		return errParts
	}
	r.readParts(&rest, bits)
	r.Idem = string(rest.take(int(body[offIdem])))
	r.Memo = string(rest.take(int(body[offMemo])))
	if err := r.readImages(&rest, int(body[offImages])); err != nil {
		return err
	}
	switch {
	case rest.short || len(rest.b) != 0:
		return errLength
	case r.parts() != bits:
		return errParts
	}
	return r.check()
}

// sealed judges length, version and checksum of b, and returns it without the checksum. The versions are those from 1 to newest.
func sealed(b []byte, least, most int, newest byte) ([]byte, error) {
	if len(b) < least+crcSize || len(b) > most {
		return nil, errLength
	}
	if b[0] < version1 || b[0] > newest {
		return nil, errVersion
	}
	body := b[:len(b)-crcSize]
	if checksum(body) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, errCRC
	}
	return body, nil
}

func (r *Record) readHead(b []byte) (bits uint16) {
	le := binary.LittleEndian
	_ = b[headSize-1]
	r.Named = b[0] == version2
	r.Op = Op(b[offOp])
	r.Flags = le.Uint16(b[offFlags:])
	r.Rand = le.Uint16(b[offRand:])
	r.Seq = le.Uint64(b[offSeq:])
	r.Batch = le.Uint64(b[offBatch:])
	r.At = int64(le.Uint64(b[offAt:]))
	r.Asset = le.Uint32(b[offAsset:])
	r.Set, r.Clear = Flags(b[offSetClear]&15), Flags(b[offSetClear]>>4)
	r.Amount = engines.AmountLE(b[offAmount:])
	r.From = le.Uint64(b[offFrom:])
	r.To = le.Uint64(b[offTo:])
	r.Nonce = le.Uint64(b[offNonce:])
	return le.Uint16(b[offParts:])
}

func (r *Record) readParts(c *cut, bits uint16) {
	if bits&partWho != 0 {
		copy(r.Principal[:], c.take(8))
		copy(r.CapID[:], c.take(8))
	}
	if bits&partDedupe != 0 {
		r.Dedupe.Kind = c.byte()
		copy(r.Dedupe.Key[:], c.take(16))
		copy(r.Dedupe.Fingerprint[:], c.take(32))
	}
	if bits&partGuard != 0 {
		copy(r.Guard.Key[:], c.take(16))
		copy(r.Guard.Owner[:], c.take(16))
	}
	if bits&partHold != 0 {
		r.Hold = c.uint64()
	}
	if bits&partExpires != 0 {
		r.Expires = int64(c.uint64())
	}
	if bits&partResults != 0 {
		r.Part, r.Parts = c.uint16(), c.uint16()
		r.Results = append(r.Results, c.take(int(c.uint16()))...)
	}
	if bits&partName != 0 {
		r.Name = string(c.take(int(c.uint16())))
	}
}

func (r *Record) readImages(c *cut, n int) error {
	if n > MaxImages {
		return errImages
	}
	if cap(r.Images) < n {
		r.Images = make([]Image, 0, n)
	}
	for range n {
		b := c.take(imageSize)
		if b == nil {
			return errLength
		}
		m := Image{Account: binary.LittleEndian.Uint64(b), Asset: r.Asset, Prev: binary.LittleEndian.Uint64(b[8+sumsSize:])}
		m.State.readSums(b[8:])
		m.State.LastSeq = r.Seq
		r.Images = append(r.Images, m)
	}
	return nil
}
