package object

import (
	"encoding/hex"
	"fmt"
	"path"

	"ronbox/appliance/b3"
)

// FileHeader is the part of a header that only a part of the file of a closed period has. All but
// Part is the same in all parts.
type FileHeader struct {
	Period    uint64    `json:"period"`
	Statement b3.Digest `json:"statement"` // digest of the statement of the period
	Before    b3.Digest `json:"before"`    // digest of the statement before; zero for the first period
	B3        b3.Digest `json:"b3"`        // of the file
	Bytes     int64     `json:"bytes"`     // of the file
	Part      int       `json:"part"`
}

// maxParts is the number of parts that a name can count.
const maxParts = 100_000

// Parts returns the number of parts of the file.
func (f *FileHeader) Parts() int { return int((f.Bytes + PartSize - 1) / PartSize) }

// PartBytes returns the length of the part.
func (f *FileHeader) PartBytes() int64 { return min(PartSize, f.Bytes-f.Offset()) }

// Offset returns where in the file the part begins.
func (f *FileHeader) Offset() int64 { return int64(f.Part) * PartSize }

func (f *FileHeader) valid() bool {
	return f.Period > 0 && f.Bytes > 0 && f.Bytes <= maxParts*PartSize && f.Part >= 0 && f.Part < f.Parts() &&
		f.Before.IsZero() == (f.Period == 1)
}

// SameFile reports whether f and g are of parts of the same file.
func (f FileHeader) SameFile(g FileHeader) bool {
	f.Part = g.Part
	return f == g
}

// Name returns the name of the object in its target.
func (h *Header) Name() string {
	switch h.Kind {
	case Log:
		return path.Join(h.NodeID, h.Line, "log", fmt.Sprintf("%016x", h.From.Seq))
	case Base:
		return path.Join(h.NodeID, h.Line, "base", fmt.Sprintf("%016x", h.Seq), fmt.Sprintf("%05d", h.Part))
	}
	return path.Join(h.NodeID, "periods", fmt.Sprintf("%06d", h.File.Period), hex.EncodeToString(h.File.B3[:8]),
		fmt.Sprintf("%05d", h.File.Part))
}
