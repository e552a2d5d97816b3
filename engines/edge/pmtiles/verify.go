package pmtiles

import (
	"context"
	"errors"
	"fmt"

	"ronbox/engines/edge/tile"
)

// Verify walks all directories, compares them with the header and reads a sample of evenly spaced
// tiles. It calls c.Found for each defect and continues, and returns the number of addressed tiles.
// It checks ctx before each directory. The error is the cause of ctx or a read error.
func (r *Reader) Verify(ctx context.Context, c tile.Check) (tiles uint64, err error) {
	w := walker{r: r, check: c, stride: 1}
	r.verifyHeader(w.warn)
	if err := w.directory(ctx, r.root, "root directory", maxID, 0); err != nil {
		return 0, err
	}
	for i, of := range []string{"addressed tiles", "tile entries", "tile contents"} {
		header := [...]uint64{r.Addressed, r.Entries, r.Contents}[i]
		found := [...]uint64{w.addressed, w.entries, w.contents}[i]
		if header != 0 && header != found && !w.broken && (i < 2 || r.Clustered && !w.mixed) {
			w.warn(tile.CodeCounts, 1, "header: %d %s, the directories have %d", header, of, found)
		}
	}
	return w.addressed, w.read(ctx)
}

// verifyHeader reports the defects of the header that no tile depends on.
func (r *Reader) verifyHeader(warn func(code tile.Code, count uint64, format string, args ...any)) {
	for _, text := range r.torn {
		warn(tile.CodeSection, 1, "%s", text)
	}
	if r.Internal == tile.Unknown {
		warn(tile.CodeDirectory, 1, "header: the compression of directories is unknown")
	}
	if r.Bounds == ([4]float64{}) {
		warn(tile.CodeBounds, 1, "header: the bounds are zero, inverted or not on the globe")
	}
}

// walker visits directories depth first. The ids of a leaf lie in the span of its entry, and spans
// of a directory do not overlap. So a leaf is visited twice only in a cycle, which maxDepth ends.
type walker struct {
	r                            *Reader
	check                        tile.Check
	broken                       bool // a part was not visited, so the counts are incomplete
	addressed, entries, contents uint64
	end                          uint64  // of the tile data seen so far in a clustered archive
	mixed                        bool    // the archive claims to be clustered but is not
	sample                       []entry // every stride-th readable entry, at most tile.MaxSample
	stride, readable             uint64
}

func (w *walker) warn(code tile.Code, count uint64, format string, args ...any) {
	w.check.Found(tile.Finding{Code: code, Text: fmt.Sprintf(format, args...), Count: count})
}

func (w *walker) directory(ctx context.Context, d directory, name string, limit uint64, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, e := range d {
		if e.run > 0 {
			w.run(e)
			continue
		}
		at := w.r.Leaves.Offset + e.offset
		if e.offset+uint64(e.length) > w.r.Leaves.Length {
			w.warn(tile.CodeSection, 1, "leaf directory at %d: it leaves the section of leaf directories", at)
		}
		leaf, err := directory(nil), unfit("leaf directory at %d: more than %d deep", at, maxDepth)
		if depth < maxDepth {
			leaf, err = w.r.leaf(ctx, d, i, limit)
		}
		if err == nil {
			_, behind := d.span(i, limit)
			err = w.directory(ctx, leaf, fmt.Sprintf("leaf directory at %d", at), behind, depth+1)
		}
		if errors.Is(err, ErrUnfit) {
			w.broken = true
			w.check.Found(tile.Finding{Text: fmt.Sprintf("%s: entry %d: %v", name, i, err), Count: 1, Fatal: true})
		} else if err != nil {
			return err
		}
	}
	return nil
}

// run counts one entry and its defects. In a clustered archive its data follows all previous data,
// or was seen before.
func (w *walker) run(e entry) {
	w.entries++
	w.addressed += uint64(e.run)
	switch length := int64(e.length); {
	case length == 0:
		w.warn(tile.CodeEmpty, uint64(e.run), "tile id %d is empty", e.id)
	case length > w.r.MaxTile:
		w.warn(tile.CodeLong, uint64(e.run), "tile id %d has %d bytes, at most %d", e.id, length, w.r.MaxTile)
	default:
		w.pick(e)
	}
	if e.length > 0 && e.offset+uint64(e.length) > w.r.Tiles.Length {
		w.warn(tile.CodeSection, 1, "tile id %d: its data leaves the section of tile data", e.id)
	}
	switch {
	case !w.r.Clustered || w.mixed || e.offset < w.end:
	case e.offset == w.end:
		w.end += uint64(e.length)
		w.contents++
	default:
		w.mixed = true
		w.warn(tile.CodeClustered, 1, "tile id %d: its data at %d is not next to what ends at %d, but the header "+
			"says clustered", e.id, e.offset, w.end)
	}
}

// pick adds every stride-th entry to the sample. A full sample is thinned out and the stride
// doubled.
func (w *walker) pick(e entry) {
	w.readable++
	if (w.readable-1)%w.stride != 0 {
		return
	}
	if len(w.sample) == tile.MaxSample {
		for i := range tile.MaxSample / 2 {
			w.sample[i] = w.sample[2*i]
		}
		w.sample = w.sample[:tile.MaxSample/2]
		w.stride *= 2
		if (w.readable-1)%w.stride != 0 {
			return
		}
	}
	w.sample = append(w.sample, e)
}

// read reads the sample.
func (w *walker) read(ctx context.Context) error {
	for _, e := range w.sample {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b, err := w.r.tile(e, func(int64) error { return nil })
		switch {
		case errors.Is(err, ErrUnfit):
			w.check.Found(tile.Finding{Text: fmt.Sprintf("tile id %d: %v", e.id, err), Count: 1, Fatal: true})
		case err != nil:
			return err
		default:
			w.check.Sample(b)
		}
	}
	return nil
}
