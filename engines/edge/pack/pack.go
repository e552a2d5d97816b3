package pack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/mbtiles"
	"ronbox/engines/edge/pmtiles"
)

// shared holds the state that the packs of a set share.
type shared struct {
	cfg    Config
	leaves pmtiles.Leaves // decoded directories; nil keeps none
	slots  pmtiles.Slots
}

// archive reads one kind of pack.
type archive interface {
	// Tile reads a tile as it is stored. It returns nil if the pack has no such tile.
	Tile(ctx context.Context, z uint8, x, y uint32) ([]byte, error)
	// Verify calls fault for each fault and returns the number of tiles.
	Verify(ctx context.Context, fault func(string)) (tiles uint64, err error)
}

// Pack is one open pack. It is immutable and stays open as long as it has a reference.
type Pack struct {
	info    Info // at the opening
	path    string
	file    *os.File
	stamp   stamp
	serial  uint64 // distinguishes openings
	env     *shared
	slots   pmtiles.Slots // for decoding
	archive archive
	coding  Coding      // of every tile; pmtiles.Unknown if the first bytes of each tile decide
	end     func()      // closes the archive
	taken   atomic.Bool // a verifier works on it
	refs    atomic.Int64
}

// stamp identifies one state of a file.
type stamp struct {
	size, mtime int64 // bytes, Unix ns
	inode       uint64
}

// stampOf returns the stamp of a file, or after an error the zero stamp, which no file has.
func stampOf(st fs.FileInfo, err error) (s stamp) {
	if err == nil {
		s = stamp{size: st.Size(), mtime: st.ModTime().UnixNano()}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			s.inode = sys.Ino
		}
	}
	return s
}

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// nameOf derives the info of a pack from the name of its file. If the name is not a valid id,
// nameOf returns an error and the whole name as the id.
func nameOf(path string) (Info, error) {
	name, ext := filepath.Base(path), filepath.Ext(path)
	i := Info{
		ID:    strings.TrimSuffix(name, ext),
		Kind:  Kind(strings.TrimPrefix(ext, ".")),
		File:  name,
		State: asset.PackOpening,
	}
	if !idForm.MatchString(i.ID) {
		i.ID = name
		return i, fmt.Errorf("the id of a pack must match %s: rename the file", idForm)
	}
	return i, nil
}

// open opens a pack with one reference, for the caller. It fails after edge.packs.statement_timeout
// and reads little of the file.
func (v *shared) open(ctx context.Context, path string, info Info, serial uint64) (_ *Pack, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	p := &Pack{
		info:   info,
		path:   path,
		serial: serial,
		stamp:  stampOf(st, nil),
		env:    v,
		slots:  v.slots.Share(),
		end:    func() {},
	}
	p.refs.Store(1)
	p.info.State, p.info.Size = asset.PackVerifying, st.Size()
	if p.file, err = os.Open(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	switch info.Kind {
	case PMTiles:
		err = p.openPMTiles()
	case MBTiles:
		err = p.openMBTiles(ctx)
	default:
		err = fmt.Errorf("%s: a pack is a .pmtiles or .mbtiles file", path)
	}
	// SQLite opens the file by its name, so the name must still lead to the same file.
	if err == nil && (!p.unchanged() || stampOf(os.Stat(path)) != p.stamp) {
		err = fmt.Errorf("%s was replaced while it was opened: rescan", path)
	}
	return p, err
}

func (p *Pack) openPMTiles() error {
	r, err := pmtiles.Open(p.file, p.stamp.size, p.serial, p.env.leaves, p.slots)
	if err != nil {
		return err
	}
	meta, err := r.ReadMetadata()
	if err != nil {
		return err
	}
	p.archive, p.coding = r, r.TileCompression
	i := &p.info
	i.MinZoom, i.MaxZoom = r.MinZoom, r.MaxZoom
	i.Bounds, i.Center = r.Bounds, r.Center
	i.Tiles, i.Format = r.Addressed, Format(r.TileType)
	return i.describe(meta)
}

func (p *Pack) openMBTiles(ctx context.Context) error {
	r, err := mbtiles.Open(ctx, p.path, p.env.cfg.StatementTimeout.D())
	if err != nil {
		return err
	}
	p.archive, p.end, p.coding = r, r.Close, pmtiles.Unknown
	i := &p.info
	i.MinZoom, i.MaxZoom = r.MinZoom, r.MaxZoom
	i.Bounds, i.Center = r.Bounds, r.Center
	i.Format = formatOf(r.Format)
	err = i.describe([]byte(r.JSON))
	i.Name, i.Description, i.Attribution = r.Name, r.Description, r.Attribution
	return errors.Join(err, i.checkDescription())
}

// maxDescription bounds the metadata that is kept of a pack, in bytes. The layers of a world map
// take 100 KiB.
const maxDescription = 1 << 20

// describe reads the metadata of a pack from a JSON object. It skips members of another type.
func (i *Info) describe(b []byte) error {
	var meta struct {
		Name, Description, Attribution string
		VectorLayers                   []json.RawMessage `json:"vector_layers"`
	}
	err := json.Unmarshal(b, &meta)
	if _, skipped := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !skipped && len(b) > 0 {
		return fmt.Errorf("metadata is not a JSON object: %w", err)
	}
	i.Name, i.Description, i.Attribution = meta.Name, meta.Description, meta.Attribution
	if err = nil; len(meta.VectorLayers) > 0 {
		i.VectorLayers, err = json.Marshal(meta.VectorLayers)
	}
	return errors.Join(err, i.checkDescription())
}

func (i *Info) checkDescription() error {
	n := len(i.Name) + len(i.Description) + len(i.Attribution) + len(i.VectorLayers) + len(i.Format)
	if n > maxDescription {
		return fmt.Errorf("metadata: the description has %d bytes, at most %d", n, maxDescription)
	}
	return nil
}

// Close releases the pack. The last reference closes the file.
func (p *Pack) Close() {
	if p.refs.Add(-1) == 0 {
		p.end()
		_ = p.file.Close() // it was only read
	}
}

// hold adds a reference unless the pack is closed. It reports whether it did.
func (p *Pack) hold() bool {
	n := p.refs.Load()
	for n > 0 && !p.refs.CompareAndSwap(n, n+1) {
		n = p.refs.Load()
	}
	return n > 0
}

// unchanged reports whether the open file has the same stamp as at the opening.
func (p *Pack) unchanged() bool { return stampOf(p.file.Stat()) == p.stamp }

// view returns a reader of the file for one caller. If the name still leads to the same file, the
// reader is an *os.File, which the kernel can send. end closes the reader and releases the pack.
func (p *Pack) view() (r io.ReadSeeker, end func()) {
	own, err := os.Open(p.path)
	if err == nil && stampOf(own.Stat()) == p.stamp {
		return own, func() { _ = own.Close(); p.Close() }
	}
	_ = own.Close() // own may be nil, which Close accepts
	return io.NewSectionReader(p.file, 0, p.stamp.size), p.Close
}

// hashChunk is the number of bytes that are hashed between two checks of the context.
const hashChunk = 1 << 20

// hash returns the digest of the whole file. It calls progress after each chunk.
func (p *Pack) hash(ctx context.Context, progress func(done, total int64)) (b3.Digest, error) {
	h, buf := b3.New(), make([]byte, min(hashChunk, p.stamp.size))
	for at := int64(0); at < p.stamp.size; {
		if ctx.Err() != nil {
			return b3.Digest{}, context.Cause(ctx)
		}
		n, err := p.file.ReadAt(buf[:min(hashChunk, p.stamp.size-at)], at)
		if n == 0 {
			return b3.Digest{}, fmt.Errorf("hash at %d of %d bytes: %w", at, p.stamp.size, err)
		}
		_, _ = h.Write(buf[:n])
		at += int64(n)
		progress(at, p.stamp.size)
	}
	if !p.unchanged() {
		return b3.Digest{}, errors.New("the file has changed while it was read: replace packs by renaming")
	}
	return h.Sum32(), nil
}

// mostFaults bounds the faults that are kept of a pack.
const mostFaults = 100

// Report is the result of a verification.
type Report struct {
	Info   Info
	Faults []string // the first 100; empty if the pack is sound
	late   bool     // the only fault is that the check took too long
}

// errBudget is the cause of the context of a check that took too long.
var errBudget = errors.New("edge: the check took too long")

// check checks the structure of the pack within its budget. It returns the faults and the number of
// tiles. late means that the budget was exceeded and no other fault was found. The error is that of
// reading the file, or the cause of ctx.
func (p *Pack) check(ctx context.Context) (faults []string, tiles uint64, late bool, err error) {
	budget := p.env.cfg.budget(p.stamp.size)
	within, cancel := context.WithTimeoutCause(ctx, budget, errBudget)
	defer cancel()
	tiles, err = p.archive.Verify(within, func(fault string) {
		if len(faults) < mostFaults {
			faults = append(faults, fault)
		}
	})
	if errors.Is(err, errBudget) {
		text := fmt.Sprintf(
			"the check took more than %s: edge.packs.verify_base and verify_rate allow no more for %d bytes",
			unit.Short(budget), p.stamp.size)
		return append(faults, text), tiles, len(faults) == 0, nil
	}
	return faults, tiles, false, err
}

// verify checks the structure of the pack and hashes its file. The report has the faults; the error
// is that of reading the file, or the cause of ctx.
func (p *Pack) verify(ctx context.Context, progress func(done, total int64)) (Report, error) {
	r := Report{Info: p.info}
	faults, tiles, late, err := p.check(ctx)
	if err != nil {
		return r, err
	}
	r.late = late
	d, err := p.hash(ctx, progress)
	if err != nil {
		return r, err
	}
	r.Info.verified(d, tiles)
	return r.with(faults), nil
}

// with returns r with more faults.
func (r Report) with(faults []string) Report {
	r.Faults = append(r.Faults, faults...)
	if len(r.Faults) > 0 {
		r.Info.State, r.Info.Fault = asset.PackFailed, r.Faults[0]
	}
	return r
}

// Verify verifies a pack file without a node, within the default bounds of edge.packs. It calls
// progress while it hashes the file. expect is the digest that the file must have; zero accepts
// any. A file that cannot be opened as a pack is reported as unsound; an error is returned only if
// the file cannot be read.
func Verify(ctx context.Context, path string, expect b3.Digest,
	progress func(done, total int64)) (Report, error) {
	env := shared{cfg: DefaultConfig(), slots: pmtiles.NewSlots()}
	info, _ := nameOf(path) // the name need not be a valid id
	p, err := env.open(ctx, path, info, 0)
	if err != nil {
		if _, unread := errors.AsType[*fs.PathError](err); unread || ctx.Err() != nil {
			return Report{Info: info}, err
		}
		return Report{Info: info}.with([]string{err.Error()}), nil
	}
	defer p.Close()
	r, err := p.verify(ctx, progress)
	if err == nil && !expect.IsZero() && r.Info.Digest != expect {
		r = r.with([]string{fmt.Sprintf("the digest is %s, not %s", r.Info.Digest, expect)})
	}
	return r, err
}
