package object

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"filippo.io/age"
	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// Format is the version of the format that this program writes.
const Format = 1

const (
	magic    = "RBARCH"
	version  = "01"
	headAt   = len(magic) + len(version) + 4
	tailSize = b3.Size + ed25519.SignatureSize
)

// Bounds of an object, in bytes.
const (
	MaxHeader = 64 << 10
	PartSize  = 4 << 20                       // of the plain part of a base, unless it is the last
	MaxPlain  = store.MaxTapped + 4           // of one entry and its length
	MaxObject = MaxPlain + MaxHeader + 16<<20 // what cannot be compressed grows by less than a fifth
)

// Kinds of objects.
const (
	Log    = "log"
	Base   = "base"
	Period = "period"
)

// Ciphers of payloads.
const (
	Age  = "age"
	None = "none"
)

// Errors of objects.
var (
	ErrDamaged  = errors.New("archive: a damaged object")
	ErrFormat   = errors.New("archive: an object of another release")
	ErrIdentity = errors.New("archive: the identity does not open the object")
)

// Header is the part of an object that anybody can read.
type Header struct {
	Format      int       `json:"format"`
	Kind        string    `json:"kind"`
	NodeID      string    `json:"node_id"`
	Incarnation string    `json:"incarnation"`
	Line        string    `json:"line"`
	Schema      int       `json:"schema"`
	Signer      string    `json:"signer"` // public key, in hexadecimal
	Cipher      string    `json:"cipher"`
	MadeAt      time.Time `json:"made_at"`
	Bytes       int64     `json:"bytes"` // of the plain payload
	*LogHeader
	*BaseHeader
	File *FileHeader `json:"file,omitzero"`
}

// LogHeader is the part of a header that only a log object has.
type LogHeader struct {
	From    Point  `json:"from"` // position before the first entry
	To      Point  `json:"to"`   // position after the last entry
	Entries int    `json:"entries"`
	Prev    string `json:"prev"` // sum of the log object before; "": it is the first of its line
}

// BaseHeader is the part of a header that only a part of a base has.
type BaseHeader struct {
	Seq   uint64 `json:"seq"` // commands that the base has
	At    int64  `json:"at"`  // stamp of the last of them, Unix ns
	Part  int    `json:"part"`
	Parts int    `json:"parts"`
}

// FileHeader is the part of a header that only a part of the file of a closed period has. All but
// Part and PartB3 is the same in all parts.
type FileHeader struct {
	Period    uint64    `json:"period"`
	Statement b3.Digest `json:"statement"` // digest of the statement of the period
	Before    b3.Digest `json:"before"`    // digest of the statement before; zero for the first period
	B3        b3.Digest `json:"b3"`        // of the file
	Bytes     int64     `json:"bytes"`     // of the file
	Part      int       `json:"part"`
	PartB3    b3.Digest `json:"part_b3"` // of the plain bytes of the part
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
	f.Part, f.PartB3 = g.Part, g.PartB3
	return f == g
}

// Point is a position in the life of a file.
type Point struct {
	Seq uint64 `json:"seq"`
	At  int64  `json:"at"` // Unix ns
}

// PointOf returns the point of a position.
func PointOf(p store.Position) Point { return Point{p.Seq(), p.At()} }

// Time returns the stamp of the point.
func (p Point) Time() time.Time { return time.Unix(0, p.At).UTC() }

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

// check returns ErrDamaged unless h can be the header of an object.
func (h *Header) check() error {
	log, base, file := h.LogHeader, h.BaseHeader, h.File
	bad := ""
	switch {
	case h.Format != Format:
		return fmt.Errorf("%w: format %d, this program reads %d", ErrFormat, h.Format, Format)
	case h.NodeID == "" || h.Incarnation == "" || (h.Line == "") != (h.Kind == Period) || h.Schema < 1:
		bad = "node_id, incarnation, line or schema"
	case h.Cipher != Age && h.Cipher != None:
		bad = "cipher"
	case h.Bytes < 1 || h.Bytes > MaxPlain:
		bad = "bytes"
	case (file != nil) != (h.Kind == Period):
		bad = "kind"
	case h.Kind == Log && (log == nil || base != nil || log.From.Seq >= log.To.Seq || log.Entries < 1):
		bad = "from, to or entries"
	case h.Kind == Base && (base == nil || log != nil || base.Part < 0 || base.Part >= base.Parts):
		bad = "part or parts"
	case h.Kind == Period && (log != nil || base != nil || !file.valid() || h.Bytes != file.PartBytes()):
		bad = "file"
	case h.Kind != Log && h.Kind != Base && h.Kind != Period:
		bad = "kind"
	}
	if bad != "" {
		return fmt.Errorf("%w: its header has no valid %s", ErrDamaged, bad)
	}
	return nil
}

// Key signs objects.
type Key struct{ private ed25519.PrivateKey }

// NewKey returns the key with the given seed of 32 bytes.
func NewKey(seed []byte) (Key, error) {
	if len(seed) != ed25519.SeedSize {
		return Key{}, fmt.Errorf("a seed of %d bytes, not %d", len(seed), ed25519.SeedSize)
	}
	return Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// Signer returns the public key as headers have it, or "" for no key.
func (k Key) Signer() string {
	if k.private == nil {
		return ""
	}
	return hex.EncodeToString(k.private.Public().(ed25519.PublicKey))
}

// Write writes an object with the bytes of plain, which must be h.Bytes long. It sets the format,
// the signer and the cipher of h. Without recipients the payload is not encrypted.
func Write(to io.Writer, h Header, plain io.Reader, recipients []age.Recipient, key Key) (sum b3.Digest, err error) {
	h.Format, h.Signer, h.Cipher = Format, key.Signer(), None
	if len(recipients) > 0 {
		h.Cipher = Age
	}
	if err := h.check(); err != nil {
		return sum, err
	}
	head, err := json.Marshal(h)
	if err != nil {
		return sum, err
	}
	hash := b3.New()
	w := io.MultiWriter(to, hash)
	raw := append([]byte(magic+version), binary.BigEndian.AppendUint32(nil, uint32(len(head)))...)
	if _, err := w.Write(append(raw, head...)); err != nil {
		return sum, err
	}
	if err := writePayload(w, plain, h.Bytes, recipients); err != nil {
		return sum, err
	}
	sum = hash.Sum32()
	_, err = to.Write(append(sum[:], ed25519.Sign(key.private, sum[:])...))
	return sum, err
}

// writePayload compresses and encrypts n bytes.
func writePayload(w io.Writer, plain io.Reader, n int64, recipients []age.Recipient) (err error) {
	var sealed io.WriteCloser
	if len(recipients) > 0 {
		if sealed, err = age.Encrypt(w, recipients...); err != nil {
			return err
		}
		w = sealed
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window/4))
	if err != nil {
		return err
	}
	if _, err = io.CopyN(z, plain, n); err != nil {
		return errors.Join(fmt.Errorf("the plain bytes of an object: %w", err), z.Close())
	}
	if err = z.Close(); err == nil && sealed != nil {
		err = sealed.Close()
	}
	return err
}

// window bounds the zstd window, and so the memory of a decoder, in bytes. A quarter of it and the
// lowest level make objects 7 % larger than the default level, for two thirds of its time.
const window = 4 << 20

// Object is an object whose sum and signature are right.
type Object struct {
	Header
	Sum     b3.Digest
	payload []byte
}

// ParseHeader parses the header at the start of an object, of which raw may hold only a part. n is
// the length of the part that was needed: if it is longer than raw, the caller reads on.
func ParseHeader(raw []byte) (h Header, n int, err error) {
	n = headAt
	if len(raw) < n {
		return h, n, nil
	}
	if string(raw[:len(magic)]) != magic {
		return h, n, fmt.Errorf("%w: it does not begin with %s", ErrDamaged, magic)
	}
	if v := raw[len(magic) : len(magic)+len(version)]; string(v) != version {
		if digits(v) {
			return h, n, fmt.Errorf("%w: format %s, this program reads %s", ErrFormat, v, version)
		}
		return h, n, fmt.Errorf("%w: it does not begin with %s%s", ErrDamaged, magic, version)
	}
	size := binary.BigEndian.Uint32(raw[headAt-4:])
	if size > MaxHeader {
		return h, n, fmt.Errorf("%w: a header of %d bytes", ErrDamaged, size)
	}
	if n += int(size); len(raw) < n {
		return h, n, nil
	}
	if err := json.Unmarshal(raw[headAt:n], &h); err != nil {
		return h, n, fmt.Errorf("%w: header: %w", ErrDamaged, err)
	}
	return h, n, h.check()
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// Parse checks the sum and the signature of an object and parses its header.
func Parse(raw []byte) (*Object, error) {
	end := len(raw) - tailSize
	if end < 0 || len(raw) > MaxObject {
		return nil, fmt.Errorf("%w: %d bytes", ErrDamaged, len(raw))
	}
	h, n, err := ParseHeader(raw[:end])
	o := &Object{Header: h, Sum: b3.Digest(raw[end:])}
	if b3.Sum(raw[:end]) != o.Sum {
		return nil, fmt.Errorf("%w: it differs from its checksum", ErrDamaged)
	}
	if err == nil && n > end {
		err = fmt.Errorf("%w: it ends within its header", ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	public, err := hex.DecodeString(h.Signer)
	if err != nil || len(public) != ed25519.PublicKeySize || !ed25519.Verify(public, o.Sum[:], raw[end+b3.Size:]) {
		return nil, fmt.Errorf("%w: it was not signed by %q", ErrDamaged, h.Signer)
	}
	o.payload = raw[n:end]
	return o, nil
}

// Tail returns the sum and the signature at the end of an object, which identify it.
func Tail(raw []byte) []byte { return raw[max(len(raw)-tailSize, 0):] }

// Plain returns the plain bytes. It returns ErrIdentity if none of the identities opens the object.
func (o *Object) Plain(ids []age.Identity) ([]byte, error) {
	var from io.Reader = bytes.NewReader(o.payload)
	if o.Cipher == Age {
		if len(ids) == 0 {
			return nil, fmt.Errorf("%w: none was given", ErrIdentity)
		}
		var err error
		if from, err = age.Decrypt(from, ids...); err != nil {
			if _, none := errors.AsType[*age.NoIdentityMatchError](err); none {
				return nil, fmt.Errorf("%w: it was made for another recipient", ErrIdentity)
			}
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window),
		zstd.WithDecoderMaxMemory(MaxPlain))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(z, o.Bytes+1))
	if err == nil && n != o.Bytes {
		err = fmt.Errorf("%d bytes, its header has %d", n, o.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: payload: %w", ErrDamaged, err)
	}
	return out.Bytes(), nil
}

// AppendEntry appends an entry to a plain log.
func AppendEntry(log, entry []byte) []byte {
	return append(binary.BigEndian.AppendUint32(log, uint32(len(entry))), entry...)
}

// CutEntry cuts the first entry off a plain log. It reports false if the log is empty, or ends
// within an entry.
func CutEntry(log []byte) (entry, rest []byte, ok bool) {
	if len(log) < 4 {
		return nil, log, false
	}
	n := int64(binary.BigEndian.Uint32(log))
	if n > int64(len(log)-4) {
		return nil, log, false
	}
	return log[4 : 4+n], log[4+n:], true
}

// Entries returns the entries of a plain log. It returns ErrDamaged if the log ends within one.
func Entries(log []byte) (entries [][]byte, err error) {
	for len(log) > 0 {
		e, rest, ok := CutEntry(log)
		if !ok {
			return nil, fmt.Errorf("%w: its log ends within an entry", ErrDamaged)
		}
		entries, log = append(entries, e), rest
	}
	return entries, nil
}
