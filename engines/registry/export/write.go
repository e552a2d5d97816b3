package export

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
)

// Format names the layout, in log.json.
const Format = "ronbox-registry-export-v1"

// Names in the directory.
const (
	fileLog        = "log.json"
	fileCheckpoint = "checkpoint"
	dirPayload     = "payload"
	dirAudit       = "audit"
	dirEpoch       = "epoch"
	// of a pruned log: entry and payload of genesis and of the changes of signers before
	// min_version
	dirKept       = "kept"
	fileRetention = "retention" // of a pruned log: the statement
	fileSnapshot  = "snapshot"  // of a pruned log: the items of min_version
)

// auditBundle is how many audit records one file holds.
const auditBundle = 1024

// ErrNoCheckpoint is returned for a log that no checkpoint covers.
var ErrNoCheckpoint = errors.New("the log has no checkpoint")

// Index is log.json.
type Index struct {
	Format   string      `json:"format"`
	Origin   string      `json:"origin"`
	Size     uint64      `json:"size"` // versions
	Genesis  string      `json:"genesis"`
	Head     record.Head `json:"head"`
	AuditSeq uint64      `json:"audit_seq"`
	AuditB3  b3.Digest   `json:"audit_b3"`
	Epochs   uint64      `json:"epochs"`

	// of a pruned log: the first complete version, and the first audit record
	MinVersion uint64 `json:"min_version,omitzero"`
	MinAudit   uint64 `json:"min_audit,omitzero"`

	Profile string `json:"profile,omitzero"` // rverify.ProfileFollowed: the log has no audit chain
}

// Source is a log with its tree.
type Source interface {
	rverify.LogReader
	rverify.TreeReader
	// Latest returns the latest checkpoint, nil before the first.
	Latest() []byte
}

// Write writes src, up to its latest checkpoint, into dir, which must be empty or absent. It calls
// progress with the number of versions. If it fails, it removes the files that it has written.
func Write(ctx context.Context, dir string, src Source, progress func(done, total uint64)) (Index, error) {
	raw := src.Latest()
	if raw == nil {
		return Index{}, ErrNoCheckpoint
	}
	tree, err := checkpoint.TreeOf(raw)
	if err != nil {
		return Index{}, err
	}
	if err := claim(dir); err != nil {
		return Index{}, err
	}
	w := writer{dir: dir, src: src, index: Index{Format: Format, Origin: tree.Origin, Size: tree.Size}}
	if err := w.write(ctx, raw, progress); err != nil {
		return Index{}, errors.Join(err, w.remove())
	}
	return w.index, nil
}

// claim creates the directory of an export, or checks that it is empty.
func claim(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err == nil && len(there) > 0 {
		err = fmt.Errorf("%s is not empty: name another directory, or remove this one if its export was cut", dir)
	}
	return err
}

type writer struct {
	dir   string
	src   Source
	index Index
	last  *record.Artifact // the entry of the last version
	made  []string         // names of the files that put has made
}

// write writes the export, whose checkpoint is raw.
func (w *writer) write(ctx context.Context, raw []byte, progress func(done, total uint64)) error {
	if err := w.horizon(); err != nil {
		return err
	}
	size := w.index.Size
	for first := uint64(1); first <= size; first += logtree.Width {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if first+logtree.Width <= w.index.MinVersion {
			continue // it is pruned
		}
		if err := w.bundle(first, min(size, first+logtree.Width-1)); err != nil {
			return err
		}
		progress(min(size, first+logtree.Width-1), size)
	}
	err := errors.Join(w.tiles(), w.epochs())
	if err == nil {
		err = w.audit(ctx)
	}
	if err == nil {
		err = w.put(fileCheckpoint, raw)
	}
	if err != nil {
		return err
	}
	out, err := json.Marshal(w.index, jsontext.Multiline(true))
	if err != nil {
		return err
	}
	return w.put(fileLog, append(out, '\n'))
}

// remove removes the files that put has made, and their directories that are then empty.
func (w *writer) remove() (err error) {
	for _, name := range w.made {
		err = errors.Join(err, os.Remove(filepath.Join(w.dir, filepath.FromSlash(name))))
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			if os.Remove(filepath.Join(w.dir, filepath.FromSlash(up))) != nil {
				break // it is not empty
			}
		}
	}
	return err
}

// put writes a new file, synced.
func (w *writer) put(name string, raw []byte) error {
	file := filepath.Join(w.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	w.made = append(w.made, name)
	_, err = f.Write(raw)
	return errors.Join(err, f.Sync(), f.Close())
}

// horizon writes the statement, the snapshot and the kept versions of a pruned log.
func (w *writer) horizon() error {
	h, err := w.src.Horizon()
	if err != nil || h == nil {
		return err
	}
	w.index.MinVersion, w.index.MinAudit = h.Min, h.Audit
	items, err := h.Items()
	if err != nil {
		return fmt.Errorf("items of version %d: %w", h.Min, err)
	}
	for _, raw := range w.src.Epochs() {
		if len(raw) < 8 || binary.BigEndian.Uint64(raw) >= h.Min {
			break
		}
		v := binary.BigEndian.Uint64(raw)
		entry, payload, err := w.version(v)
		if err == nil {
			err = errors.Join(w.put(keptPath(v, "entry"), entry), w.put(keptPath(v, "payload"), payload))
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(w.put(fileRetention, h.Note), w.put(fileSnapshot, items.Snapshot()))
}

func keptPath(v uint64, what string) string { return fmt.Sprintf("%s/%d.%s", dirKept, v, what) }

// version reads the entry and the payload of a version.
func (w *writer) version(v uint64) (entry, payload []byte, err error) {
	if entry, err = w.src.Entry(v); err != nil {
		return nil, nil, fmt.Errorf("entry of version %d: %w", v, err)
	}
	if payload, err = w.src.Payload(v); err != nil {
		return nil, nil, fmt.Errorf("payload of version %d: %w", v, err)
	}
	if v == 1 {
		w.index.Genesis = b3.Sum(payload).String()
	}
	return entry, payload, nil
}

// bundle writes the entries and the payloads of up to 256 versions.
func (w *writer) bundle(from, to uint64) (err error) {
	var entries, payloads []byte
	for v := from; v <= to; v++ {
		var entry, payload []byte // empty: the version is pruned
		if v >= w.index.MinVersion {
			if entry, payload, err = w.version(v); err != nil {
				return err
			}
		}
		entries = append(binary.BigEndian.AppendUint16(entries, uint16(len(entry))), entry...)
		payloads = append(binary.BigEndian.AppendUint32(payloads, uint32(len(payload))), payload...)
		if v == w.index.Size {
			if w.last, err = record.ParseEntry(entry); err != nil {
				return fmt.Errorf("entry of version %d: %w", v, err)
			}
		}
	}
	at, width := logtree.At{N: (from - 1) / logtree.Width}, int(to-from+1)
	return errors.Join(w.put(logtree.Path(at, width, true), entries), w.put(payloadPath(at.N), payloads))
}

func payloadPath(n uint64) string {
	return dirPayload + strings.TrimPrefix(logtree.Path(logtree.At{N: n}, logtree.Width, false), "tile/0")
}

// tiles writes the hashes: of each level the full tiles, and the used part of the last one.
func (w *writer) tiles() error {
	for level, n := uint8(0), w.index.Size; n > 0; level, n = level+1, n/logtree.Width {
		for i := uint64(0); i*logtree.Width < n; i++ {
			at, width := logtree.At{Level: level, N: i}, int(min(logtree.Width, n-i*logtree.Width))
			raw := w.src.Tile(at)
			if len(raw) < width*32 {
				return fmt.Errorf("%w: level %d, tile %d", logtree.ErrTile, level, i)
			}
			if err := w.put(logtree.Path(at, width, false), raw[:width*32]); err != nil {
				return err
			}
		}
	}
	return nil
}

// epochs writes the signer sets that versions of the export have installed.
func (w *writer) epochs() error {
	for epoch, raw := range w.src.Epochs() {
		if len(raw) < 8 || binary.BigEndian.Uint64(raw) > w.index.Size {
			break
		}
		name := fmt.Sprintf("%s/%d", dirEpoch, epoch)
		if err := w.put(name, fmt.Appendf(nil, "%d\n%s\n", binary.BigEndian.Uint64(raw), raw[8:])); err != nil {
			return err
		}
		w.index.Epochs, w.index.Head.Epoch = epoch, epoch
	}
	return nil
}

// audit completes HEAD and writes the records up to that of the commit of the last version. A
// followed log has none.
func (w *writer) audit(ctx context.Context) error {
	e := w.last
	w.index.Head = record.Head{
		Version: e.Version, Hash: e.Hash(), PayloadB3: e.PayloadB3,
		CommittedAt: e.CommittedAt, Epoch: w.index.Head.Epoch,
	}
	if w.src.Followed() {
		w.index.Profile = rverify.ProfileFollowed
		return nil
	}
	last := e.AuditSeq + 1
	for first := uint64(1); first <= last; first += auditBundle {
		if first+auditBundle <= w.index.MinAudit {
			continue // it is pruned
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var lines bytes.Buffer
		for seq, raw := range w.src.Audit(max(first, w.index.MinAudit), min(last, first+auditBundle-1)) {
			lines.Write(raw)
			lines.WriteByte('\n')
			if seq == last {
				w.index.AuditSeq, w.index.AuditB3 = seq, b3.Sum(raw)
			}
		}
		if err := w.put(auditPath(first), lines.Bytes()); err != nil {
			return err
		}
	}
	if w.index.AuditSeq != last {
		return fmt.Errorf("audit record %d: %w", last, rverify.ErrMissing)
	}
	return nil
}

func auditPath(first uint64) string { return fmt.Sprintf("%s/%012d.ndjson", dirAudit, first) }
