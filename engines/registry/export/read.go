package export

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
)

// maxFile is the most bytes of one file of an export: 256 payloads of the largest size.
const maxFile = 256*(record.MaxPayload+4) + 1

// Log reads an export.
type Log struct {
	Index
	dir      string
	note     []byte
	tree     checkpoint.Tree
	entries  bundle
	payloads bundle
}

// bundle is the last file read.
type bundle struct {
	n     uint64
	parts [][]byte
}

var (
	_ rverify.LogReader  = (*Log)(nil)
	_ rverify.TreeReader = (*Log)(nil)
)

// Open reads the index of an export. It verifies nothing.
func Open(dir string) (*Log, error) {
	l := &Log{dir: dir}
	raw, err := l.file(fileLog)
	if err != nil {
		return nil, fmt.Errorf("%s is not an export: %w", dir, err)
	}
	if err := json.Unmarshal(raw, &l.Index, json.RejectUnknownMembers(true)); err != nil || l.Format != Format {
		return nil, fmt.Errorf("%s: %s does not have the format %s (%v)", dir, fileLog, Format, err)
	}
	if l.note, err = l.file(fileCheckpoint); err != nil {
		return nil, err
	}
	if l.tree, err = checkpoint.TreeOf(l.note); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, fileCheckpoint), err)
	}
	return l, nil
}

func (l *Log) file(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(l.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	raw, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err == nil && len(raw) == maxFile {
		err = fmt.Errorf("%s is too large", name)
	}
	return raw, err
}

// Head returns the end of the export.
func (l *Log) Head() (record.Head, error) {
	if l.Index.Head.Version != l.Size || l.tree.Size != l.Size {
		return record.Head{}, fmt.Errorf("%s names version %d and size %d, the checkpoint %d", fileLog,
			l.Index.Head.Version, l.Size, l.tree.Size)
	}
	return l.Index.Head, nil
}

// Followed reports whether the export is of a copy without the audit chain.
func (l *Log) Followed() bool { return l.Profile == rverify.ProfileFollowed }

// AuditHead returns the number and hash of the last audit record of the export.
func (l *Log) AuditHead() (uint64, b3.Digest, error) { return l.AuditSeq, l.AuditB3, nil }

// Latest returns the checkpoint.
func (l *Log) Latest() []byte { return l.note }

// Entry returns the entry of a version.
func (l *Log) Entry(v uint64) ([]byte, error) {
	n := (v - 1) / logtree.Width
	width := int(min(logtree.Width, l.Size-n*logtree.Width))
	return l.part(v, &l.entries, "entry", 2, logtree.Path(logtree.At{N: n}, width, true))
}

// Payload returns the payload of a version.
func (l *Log) Payload(v uint64) ([]byte, error) {
	return l.part(v, &l.payloads, "payload", 4, payloadPath((v-1)/logtree.Width))
}

// keptFile returns the name of a kept file of a version before MinVersion.
func (l *Log) keptFile(v uint64, what string) ([]byte, error) {
	raw, err := l.file(keptPath(v, what))
	if errors.Is(err, fs.ErrNotExist) {
		err = rverify.ErrMissing
	}
	return raw, err
}

// Horizon returns where a pruned log begins, nil if the log is complete.
func (l *Log) Horizon() (*rverify.Horizon, error) {
	if l.MinVersion <= 1 {
		return nil, nil
	}
	note, err := l.file(fileRetention)
	return &rverify.Horizon{
		Min:   l.MinVersion,
		Audit: l.MinAudit,
		Note:  note,
		Items: func() (items record.Items, err error) {
			raw, err := l.file(fileSnapshot)
			if err != nil {
				return items, err
			}
			all, err := record.ParseSnapshot(raw)
			if err != nil {
				return items, err
			}
			return record.NewItems(all)
		},
	}, err
}

// part returns the part of version v in its bundle, in which a length in so many bytes precedes
// each part.
func (l *Log) part(v uint64, b *bundle, what string, width int, path string) ([]byte, error) {
	if v == 0 || v > l.Size {
		return nil, rverify.ErrMissing
	}
	if v < l.MinVersion {
		return l.keptFile(v, what)
	}
	n := (v-1)/logtree.Width + 1
	if b.n != n {
		raw, err := l.file(path)
		if err != nil {
			return nil, err
		}
		b.n, b.parts = n, nil
		for len(raw) > 0 {
			part, rest, ok := cut(raw, width)
			if !ok {
				b.n = 0
				return nil, fmt.Errorf("the bundle of version %d is cut", v)
			}
			b.parts, raw = append(b.parts, part), rest
		}
	}
	if at := (v - 1) % logtree.Width; at < uint64(len(b.parts)) {
		return b.parts[at], nil
	}
	return nil, rverify.ErrMissing
}

func cut(raw []byte, width int) (part, rest []byte, ok bool) {
	if len(raw) < width {
		return nil, nil, false
	}
	n := 0
	for _, b := range raw[:width] {
		n = n<<8 | int(b)
	}
	raw = raw[width:]
	if len(raw) < n {
		return nil, nil, false
	}
	return raw[:n], raw[n:], true
}

// Audit yields the existing records from…to.
func (l *Log) Audit(from, to uint64) iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		to = min(to, l.AuditSeq)
		for seq := max(from, l.MinAudit, 1); seq <= to; {
			first := (seq-1)/auditBundle*auditBundle + 1
			raw, err := l.file(auditPath(first))
			if err != nil {
				return
			}
			lines := bytes.Split(bytes.TrimSuffix(raw, []byte{'\n'}), []byte{'\n'})
			top := max(first, l.MinAudit) // of the file
			for ; seq <= to && seq < first+auditBundle; seq++ {
				if seq-top >= uint64(len(lines)) || !yield(seq, lines[seq-top]) {
					return
				}
			}
		}
	}
}

// Epochs yields the signer sets, each after the version that installed it.
func (l *Log) Epochs() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		for epoch := uint64(1); epoch <= l.Index.Epochs; epoch++ {
			raw, err := l.file(fmt.Sprintf("%s/%d", dirEpoch, epoch))
			if err != nil {
				return
			}
			text, set, _ := bytes.Cut(bytes.TrimSuffix(raw, []byte{'\n'}), []byte{'\n'})
			version, err := strconv.ParseUint(string(text), 10, 64)
			if err != nil || !yield(epoch, append(binary.BigEndian.AppendUint64(nil, version), set...)) {
				return
			}
		}
	}
}

// TreeSize returns the size of the checkpoint.
func (l *Log) TreeSize() (uint64, error) { return l.tree.Size, nil }

// Tile returns the bytes of a tile, nil if it does not exist.
func (l *Log) Tile(at logtree.At) []byte {
	n := l.tree.Size >> (logtree.Height * uint(at.Level))
	if at.N*logtree.Width >= n {
		return nil
	}
	raw, err := l.file(logtree.Path(at, int(min(logtree.Width, n-at.N*logtree.Width)), false))
	if err != nil {
		return nil
	}
	return raw
}

// Notes yields the checkpoint.
func (l *Log) Notes() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) { yield(l.tree.Size, l.note) }
}
