package pack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/mbtiles"
	"ronbox/engines/edge/pmtiles"
	"ronbox/engines/edge/tile"
)

// shared holds the state that the packs of a set share.
type shared struct {
	cfg    Config
	leaves pmtiles.Leaves // decoded directories; nil keeps none
	slots  pmtiles.Slots
	room   *room // nil without a node
}

// archive reads one kind of pack.
type archive interface {
	// Tile reads a tile as it is stored. It calls room with the size of a tile before it reads it.
	// It returns nil if the pack has no such tile, and tile.ErrSkipped if it has one that is not
	// served.
	Tile(ctx context.Context, z uint8, x, y uint32, room func(int64) error) ([]byte, error)
	// Verify reports defects and a sample of tiles to c, and returns the number of tiles.
	Verify(ctx context.Context, c tile.Check) (tiles uint64, err error)
}

// Pack is one open pack. It is immutable and stays open as long as it has a reference.
type Pack struct {
	info     Info // at the opening
	path     string
	file     *os.File
	stamp    stamp
	serial   uint64 // distinguishes openings
	env      *shared
	slots    pmtiles.Slots // for decoding
	archive  archive
	declared Coding                 // of every tile; tile.Unknown if the file does not say
	format   string                 // as the file names it
	found    []tile.Finding         // at the opening
	end      func()                 // closes the archive
	taken    atomic.Bool            // a verifier works on it
	checked  atomic.Pointer[Report] // of its check; nil until then
	refs     atomic.Int64
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
		Kind:  Kind(strings.ToLower(strings.TrimPrefix(ext, "."))),
		File:  name,
		State: asset.PackOpening,
	}
	if ext != "."+string(i.Kind) {
		i.ID = name
		return i, fmt.Errorf("the extension of a pack is in lower case: rename the file to %s", strings.ToLower(name))
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
	r, err := pmtiles.Open(p.file, p.stamp.size, pmtiles.Options{
		Serial: p.serial, Cache: p.env.leaves, Slots: p.slots, MaxTile: p.env.cfg.MaxTile.Bytes(),
	})
	if err != nil {
		return err
	}
	p.archive, p.declared, p.format = r, r.TileCoding, string(r.TileType)
	i := &p.info
	i.MinZoom, i.MaxZoom = r.MinZoom, r.MaxZoom
	i.Bounds, i.Center = r.Bounds, r.Center
	i.Tiles, i.Format = r.Addressed, r.TileType
	meta, err := r.ReadMetadata()
	if err == nil {
		err = i.describe(meta, p.env.cfg.MaxDescription.Bytes())
	} else if !errors.Is(err, pmtiles.ErrUnfit) {
		return err
	}
	p.note(tile.CodeMetadata, err)
	return nil
}

func (p *Pack) openMBTiles(ctx context.Context) error {
	r, err := mbtiles.Open(ctx, p.path, mbtiles.Limits{
		Within:      p.env.cfg.StatementTimeout.D(),
		MaxTile:     p.env.cfg.MaxTile.Bytes(),
		MaxMetadata: p.env.cfg.MaxDescription.Bytes(),
	})
	if err != nil {
		return err
	}
	p.archive, p.end, p.declared, p.format = r, r.Close, tile.Unknown, r.Format
	i := &p.info
	p.note(tile.CodeJSON, i.describe([]byte(r.JSON), p.env.cfg.MaxDescription.Bytes()))
	i.MinZoom, i.MaxZoom = r.MinZoom, r.MaxZoom
	i.Bounds, i.Center = r.Bounds, r.Center
	i.Format = tile.FormatOf(r.Format)
	i.Name, i.Description, i.Attribution = valid(r.Name), valid(r.Description), valid(r.Attribution)
	i.Revision, i.Type = valid(r.Version), valid(r.Type)
	return nil
}

// note keeps err as a finding, unless it is nil.
func (p *Pack) note(code tile.Code, err error) {
	if err != nil {
		p.found = append(p.found, tile.Finding{Code: code, Text: err.Error(), Count: 1})
	}
}

// describe reads the metadata of a pack from a JSON object. It skips members of another type. An
// error leaves out what cannot be read, or what exceeds most bytes together.
func (i *Info) describe(b []byte, most int64) error {
	var meta struct {
		Name, Description, Attribution, Version, Type string
		VectorLayers                                  []json.RawMessage `json:"vector_layers"`
	}
	err := json.Unmarshal(bytes.ToValidUTF8(b, []byte("\uFFFD")), &meta)
	if _, skipped := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !skipped && len(b) > 0 {
		return fmt.Errorf("metadata is not a JSON object: %w", err)
	}
	var layers []byte
	if len(meta.VectorLayers) > 0 {
		if layers, err = json.Marshal(meta.VectorLayers); err != nil {
			return fmt.Errorf("metadata: vector_layers: %w", err)
		}
	}
	length := int64(0)
	keep := func(s string) string {
		if length += int64(len(s)); length > most {
			return ""
		}
		return s
	}
	i.Name, i.Attribution = keep(meta.Name), keep(meta.Attribution)
	i.Revision, i.Type = keep(meta.Version), keep(meta.Type)
	if kept := keep(string(layers)); kept != "" {
		i.VectorLayers = layers
	}
	i.Description = keep(meta.Description)
	if length > most {
		return fmt.Errorf("metadata: the description has %d bytes, of which at most %d are kept", length, most)
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
func (p *Pack) unchanged() bool {
	var st unix.Stat_t // each tile asks: an fs.FileInfo would be allocated
	err := unix.Fstat(int(p.file.Fd()), &st)
	return err == nil && p.stamp == stamp{size: st.Size, mtime: st.Mtim.Nano(), inode: st.Ino}
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

// verify checks the pack and, unless the check fails, hashes its file. The report has the faults;
// the error is that of reading the file, or the cause of ctx.
func (p *Pack) verify(ctx context.Context, progress func(done, total int64)) (Report, error) {
	r, err := p.check(ctx)
	if err != nil || len(r.Faults) > 0 && !r.late {
		return r, err
	}
	d, err := p.hash(ctx, progress)
	if err != nil {
		return r, err
	}
	r.Info.verified(d)
	return r.with(nil), nil
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
