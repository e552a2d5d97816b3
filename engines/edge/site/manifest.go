package site

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"ronbox/appliance/b3"
	"ronbox/engines/canon"
)

// Schema names the form of a manifest.
const Schema = "ronbox.site/1"

// MediaType is the type under which manifests are stored.
const MediaType = "application/vnd.ronbox.site+json"

// Bounds of a manifest.
const (
	MaxFiles = 100_000
	MaxBytes = 32 << 20
	MaxSize  = 1 << 46 // bytes of one file: 64 TiB, so that the sum of all fits in 63 bits
	maxPath  = 1024    // bytes
	maxPart  = 255     // bytes of one segment of a path: that of most file systems
	maxType  = 100     // bytes
)

// File is one file of a site.
type File struct {
	Path   string // relative, with slashes
	Digest b3.Digest
	Size   int64
	Type   string // media type, as the publisher named it
}

// Error describes an invalid manifest or an invalid file of one.
type Error struct {
	Path   string // of the file; "" for the manifest as a whole
	Reason string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "manifest " + e.Reason
	}
	return fmt.Sprintf("file %q %s", e.Path, e.Reason)
}

// Encode returns the manifest of files, in any order. It returns an *Error if a file is invalid, if
// two have the same path, or if the manifest would exceed its bounds.
func Encode(files []File) ([]byte, error) {
	if len(files) == 0 || len(files) > MaxFiles {
		return nil, &Error{Reason: fmt.Sprintf("must have 1 to %d files, not %d", MaxFiles, len(files))}
	}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	out := append(make([]byte, 0, 256*len(files)), head...)
	for i, f := range files {
		if err := f.check(); err != nil {
			return nil, err
		}
		if i > 0 && files[i-1].Path == f.Path {
			return nil, &Error{f.Path, "is named twice"}
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = f.append(out)
	}
	out = append(out, tail...)
	if len(out) > MaxBytes {
		return nil, &Error{Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(out), MaxBytes)}
	}
	return out, nil
}

// The parts of a manifest around its files, and of a file around its members.
const (
	head   = `{"files":{`
	tail   = `},"schema":"` + Schema + `"}`
	toHash = `":{"b3":"`
	toSize = `","size":"`
	toType = `","type":"`
	toEnd  = `"}`
)

// append appends the spelling of f, which is that of canon.Append for printable text without quotes
// and backslashes.
func (f *File) append(out []byte) []byte {
	out = append(append(append(out, '"'), f.Path...), toHash...)
	out, _ = f.Digest.AppendText(out) // never fails
	out = strconv.AppendInt(append(out, toSize...), f.Size, 10)
	return append(append(append(out, toType...), f.Type...), toEnd...)
}

// check returns an *Error if a file cannot be in a manifest.
func (f *File) check() error {
	if err := CheckPath(f.Path); err != nil {
		return err
	}
	if f.Size < 0 || f.Size > MaxSize {
		return &Error{f.Path, fmt.Sprintf("must have 0 to %d bytes", int64(MaxSize))}
	}
	if f.Type == "" || len(f.Type) > maxType || !plain(f.Type) {
		return &Error{f.Path, "must have a media type of 1 to 100 printable ASCII characters without quotes"}
	}
	return nil
}

func plain(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' })
}

// CheckPath returns an *Error unless path is a clean relative path: UTF-8 without control
// characters, quotes and backslashes, whose segments are neither empty nor dots.
func CheckPath(path string) error {
	switch {
	case path == "" || len(path) > maxPath:
		return &Error{path[:min(len(path), maxPath)], "must have a path of 1 to 1024 bytes"}
	case !utf8.ValidString(path):
		return &Error{path, "must have a path in UTF-8"}
	}
	for _, r := range path {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '"' || r == '\\' {
			return &Error{path, "must have a path without control characters, quotes and backslashes"}
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxPart {
			return &Error{path, "must have a path of segments of 1 to 255 bytes that are not dots"}
		}
	}
	return nil
}

// Manifest is a parsed manifest. It is immutable.
type Manifest struct {
	raw   string
	files []uint32 // where the path of each file begins in raw
	sum   int64    // bytes of all files
}

// Parse parses a manifest. It returns an *Error unless raw is the canonical spelling of a valid
// manifest.
func Parse(raw []byte) (*Manifest, error) {
	if len(raw) > MaxBytes {
		return nil, &Error{Reason: fmt.Sprintf("has %d bytes, at most %d are allowed", len(raw), MaxBytes)}
	}
	m := &Manifest{raw: string(raw)}
	at, last := len(head), ""
	if !strings.HasPrefix(m.raw, head) {
		return nil, errSpelling(0)
	}
	for {
		if len(m.files) == MaxFiles {
			return nil, &Error{Reason: fmt.Sprintf("has more than %d files", MaxFiles)}
		}
		f, end, err := m.read(at)
		if err != nil {
			return nil, err
		}
		if len(m.files) > 0 && f.Path <= last {
			return nil, &Error{f.Path, "is not after " + strconv.Quote(last) + " in the order of bytes"}
		}
		m.files = append(m.files, uint32(at+1))
		m.sum += f.Size
		if last = f.Path; m.raw[end:] == tail {
			m.files = slices.Clip(m.files)
			return m, nil
		}
		if end == len(m.raw) || m.raw[end] != ',' {
			return nil, errSpelling(end)
		}
		at = end + 1
	}
}

// read reads and checks the file that begins at a position of raw, and returns the position after
// it.
func (m *Manifest) read(at int) (f File, end int, err error) {
	rest, ok := strings.CutPrefix(m.raw[at:], `"`)
	if !ok {
		return f, 0, errSpelling(at)
	}
	var hash, size string
	f.Path, rest, ok = strings.Cut(rest, toHash)
	if ok {
		hash, rest, ok = strings.Cut(rest, toSize)
	}
	if ok {
		size, rest, ok = strings.Cut(rest, toType)
	}
	if ok {
		f.Type, rest, ok = strings.Cut(rest, toEnd)
	}
	if !ok {
		return f, 0, errSpelling(at)
	}
	if err = CheckPath(f.Path); err != nil {
		return f, 0, err
	}
	if f.Digest, err = b3.Parse(hash); err != nil {
		return f, 0, &Error{f.Path, "has a malformed digest: " + err.Error()}
	}
	n, err := canon.ParseNumber(size)
	if err != nil || n > MaxSize {
		return f, 0, &Error{f.Path, "has a malformed size"}
	}
	f.Size = int64(n)
	return f, len(m.raw) - len(rest), f.check()
}

func errSpelling(at int) error {
	return &Error{Reason: fmt.Sprintf("is not %s in canonical spelling: byte %d", Schema, at)}
}

// Len returns the number of files, Sum their bytes in total, and Cost the bytes that the parsed
// manifest occupies in memory.
func (m *Manifest) Len() int    { return len(m.files) }
func (m *Manifest) Sum() int64  { return m.sum }
func (m *Manifest) Cost() int64 { return int64(len(m.raw) + 4*len(m.files)) }

// File returns file i in the order of paths. Its strings share the memory of the manifest.
func (m *Manifest) File(i int) File {
	f, _, err := m.read(int(m.files[i]) - 1)
	if err != nil {
		panic("site: " + err.Error()) // cannot happen: Parse has read the file
	}
	return f
}

// path returns the path of file i.
func (m *Manifest) path(i int) string {
	rest := m.raw[m.files[i]:]
	return rest[:strings.IndexByte(rest, '"')] // a path has no quotes
}

// Find returns the file with a path.
func (m *Manifest) Find(path string) (f File, ok bool) {
	i, ok := sort.Find(len(m.files), func(i int) int { return cmp.Compare(path, m.path(i)) })
	if !ok {
		return f, false
	}
	return m.File(i), true
}
