package history

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"
	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
	"ronbox/store"
)

// Progress reports the progress of a stage; it may be nil.
type Progress func(stage string, done, total int64)

// Options are the options of Restore and Verify.
type Options struct {
	Identities []age.Identity
	Line       string // "": the one that has the moment; for Verify: all
	Signer     string // key that must have signed; "": it is not compared
	Versions   map[string]string
	Checks     []store.Check // of the rows of a restored file
	Progress   Progress
}

// Restored describes a restored file.
type Restored struct {
	Manifest store.Manifest
	Node     string
	Line     string
	Signer   string
	Base     uint64        // commands of the base that it was made from
	Entries  int           // groups applied after it
	Reached  object.Point  // the last group
	Later    uint64        // commands that the line has after it
	LaterBy  time.Duration // from the last group to the end of the line
	Newer    string        // of the latest moment: a line that was written later and has no complete base
}

// partial ends the patterns of the names of files that are not complete. Each run makes a file of
// its own. A killed run leaves it: no other run uses or removes it.
const partial = "-*.restoring"

// Restore writes the file of a node at a moment into dir, as a snapshot with its manifest. It
// returns a MomentError or a SeveralError unless one line has the moment, an ObjectError for an
// object that is damaged or missing, and object.ErrIdentity.
func (a *Archive) Restore(ctx context.Context, dir string, m Moment, o Options) (out Restored, err error) {
	l, s, err := a.find(ctx, m, o.Line)
	if err != nil {
		return out, err
	}
	if o.Signer != "" && o.Signer != s.Signer {
		return out, fmt.Errorf("%w: %s", ErrSigner, s.Signer)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return out, err
	}
	out = Restored{Node: l.Node, Line: l.ID, Signer: s.Signer}
	run := &run{a: a, o: o, signer: s.Signer, temp: filepath.Join(dir, "archive-"+l.ID+partial)}
	defer func() { err = errors.Join(err, run.remove()) }() // it has another name on success
	if lines := a.Of(l.Node).Lines; m.Latest && o.Line == "" && lines[newest(lines, a.now)] != l {
		out.Newer = lines[newest(lines, a.now)].ID
	}
	if m.Latest && s.apart {
		out.Newer = l.ID
	}
	if out.Base, err = run.baseOf(ctx, s, m); err != nil {
		return out, err
	}
	var logs []Log
	if !s.apart {
		logs, err = a.logs(ctx, l, out.Base, m)
	}
	if err == nil {
		err = run.logs(ctx, logs, m)
	}
	if err != nil {
		return out, errors.Join(err, run.replay.Close())
	}
	info := run.replay.Info()
	out.Reached, out.Entries = object.PointOf(info.Position()), run.entries
	out.Later, out.LaterBy = s.Last.Seq-info.Seq, s.Last.Time().Sub(out.Reached.Time())
	if m.Seq > 0 && info.Seq != m.Seq || m.Seq == 0 && run.next == nil && out.Reached != s.Last {
		after := run.next
		if after == nil { // the log does not lead to the next base
			after = s.after(out.Reached)
		}
		return out, errors.Join(&MomentError{Before: &out.Reached, After: after}, run.replay.Close())
	}
	out.Manifest, err = run.replay.Publish(ctx, o.Versions, o.Checks, run.progress("verify"))
	return out, err
}

// after returns the first complete base after a point, or nil.
func (s *Span) after(p object.Point) *object.Point {
	for i := range s.points {
		if s.points[i].Seq > p.Seq {
			return &s.points[i]
		}
	}
	return nil
}

// run is one restore.
type run struct {
	a       *Archive
	o       Options
	signer  string // "": it is not compared
	temp    string // pattern of path
	path    string // of the file that this run has made; "": none
	replay  *store.Replay
	sum     string        // of the last log object; "": none was read
	to      object.Point  // its end
	entries int           // applied
	next    *object.Point // end of the first group beyond the moment
}

func (r *run) progress(stage string) func(done, total int64) {
	if r.o.Progress == nil {
		return nil
	}
	return func(done, total int64) { r.o.Progress(stage, done, total) }
}

// open fetches an object and returns its plain bytes.
func (r *run) open(ctx context.Context, i target.Item) (*object.Object, []byte, error) {
	o, err := r.a.fetch(ctx, i)
	if err != nil {
		return nil, nil, err
	}
	if r.signer != "" && o.Signer != r.signer {
		return nil, nil, &ObjectError{i.Name, fmt.Errorf("%w: %s, and the base %s", ErrSigner, o.Signer, r.signer)}
	}
	plain, err := o.Plain(r.o.Identities)
	if err != nil {
		return nil, nil, &ObjectError{i.Name, err}
	}
	return o, plain, nil
}

// opened is an object with its plain bytes.
type opened struct {
	*object.Object
	name  string
	plain []byte
}

// Bounds of what is read at once.
const (
	windowObjects = 8
	windowBytes   = 32 << 20
)

// each calls fn with every object in order, after it was fetched with those that follow it.
func (r *run) each(ctx context.Context, items []target.Item, stage string, fn func(opened) error) error {
	var done, total int64
	for _, i := range items {
		total += i.Bytes
	}
	for len(items) > 0 {
		n, bytes := 0, int64(0)
		for n < len(items) && n < windowObjects && (n == 0 || bytes+items[n].Bytes <= windowBytes) {
			bytes, n = bytes+items[n].Bytes, n+1
		}
		got := make([]opened, n)
		ends := make([]error, n)
		if err := flow.Fan(ctx, n, func(ctx context.Context, i int) error {
			got[i].name = items[i].Name
			got[i].Object, got[i].plain, ends[i] = r.open(ctx, items[i])
			return nil // an object before it may be enough
		}); err != nil {
			return err
		}
		for i, o := range got {
			if ends[i] != nil {
				return ends[i]
			}
			if err := fn(o); err != nil {
				return err
			}
			if done += items[i].Bytes; r.o.Progress != nil {
				r.o.Progress(stage, done, total)
			}
		}
		items = items[n:]
	}
	return nil
}

// remove removes the file, if this run has made it and it has no other name.
func (r *run) remove() error {
	if r.path == "" {
		return nil
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// baseOf opens the newest base up to a moment that is not damaged, and returns its command. The log
// leads to the moment from each of them.
func (r *run) baseOf(ctx context.Context, s *Span, m Moment) (seq uint64, err error) {
	for i := range slices.Backward(s.Whole) {
		if m.beyond(s.points[i]) {
			continue
		}
		_, bad := r.base(ctx, &s.Whole[i], s.points[i])
		if bad == nil {
			return s.Whole[i].Seq, nil
		}
		if _, one := errors.AsType[*ObjectError](bad); !one || !errors.Is(bad, object.ErrDamaged) {
			return 0, bad
		}
		if err == nil {
			err = bad
		}
		if bad = r.remove(); bad != nil {
			return 0, bad
		}
	}
	return 0, err
}

// base writes the file of a base and opens it.
func (r *run) base(ctx context.Context, b *Base, at object.Point) (m store.Manifest, err error) {
	f, err := os.CreateTemp(filepath.Dir(r.temp), filepath.Base(r.temp)) // mode 0600
	if err != nil {
		return m, err
	}
	r.path = f.Name()
	m, err = r.writeBase(ctx, b, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return m, err
	}
	if r.replay, err = store.OpenReplay(r.path); err != nil {
		return m, err
	}
	if got := object.PointOf(r.replay.Info().Position()); got != at {
		err = &ObjectError{b.Parts[0].Name, fmt.Errorf("%w: its file is at command %d", object.ErrDamaged, got.Seq)}
		return m, errors.Join(err, r.replay.Close())
	}
	return m, nil
}

// manifestMost is the length of a manifest that is still read, bytes.
const manifestMost = object.PartSize - 4

// writeBase writes the file of a base to f, and compares it with its manifest.
func (r *run) writeBase(ctx context.Context, b *Base, f *os.File) (m store.Manifest, err error) {
	hash, size := b3.New(), int64(0)
	items := make([]target.Item, len(b.Parts))
	for i, p := range b.Parts {
		items[i] = p.Item
	}
	err = r.each(ctx, items, "base", func(o opened) error {
		if o.Parts != len(items) {
			return &ObjectError{o.name, fmt.Errorf("%w: it is one of %d parts", object.ErrDamaged, o.Parts)}
		}
		plain := o.plain
		if o.Part == 0 {
			if m, plain, err = cutManifest(plain); err != nil {
				return &ObjectError{o.name, err}
			}
		}
		_, _ = hash.Write(plain) // never fails
		size += int64(len(plain))
		_, err := f.Write(plain)
		return err
	})
	if err == nil && (size != m.Size || hash.Sum32() != m.B3) {
		err = &ObjectError{items[0].Name, fmt.Errorf("%w: its parts differ from its manifest", object.ErrDamaged)}
	}
	return m, err
}

// cutManifest cuts the manifest off the first part of a base.
func cutManifest(plain []byte) (m store.Manifest, rest []byte, err error) {
	n := uint32(0)
	if len(plain) >= 4 {
		n = binary.BigEndian.Uint32(plain)
	}
	if n == 0 || n > manifestMost || int(n) > len(plain)-4 {
		return m, nil, fmt.Errorf("%w: a manifest of %d bytes", object.ErrDamaged, n)
	}
	if err := json.Unmarshal(plain[4:4+n], &m); err != nil {
		return m, nil, fmt.Errorf("%w: manifest: %w", object.ErrDamaged, err)
	}
	return m, plain[4+n:], nil
}

// logs applies log objects up to a moment.
func (r *run) logs(ctx context.Context, logs []Log, m Moment) error {
	items := make([]target.Item, len(logs))
	for i, o := range logs {
		items[i] = o.Item
	}
	err := r.each(ctx, items, "log", func(o opened) error {
		if err := r.follows(o.Object, o.name); err != nil {
			return err
		}
		es, err := object.Entries(o.plain)
		if err != nil {
			return &ObjectError{o.name, err}
		}
		if err = r.apply(o.name, es, m); err == nil && r.next != nil {
			err = errReached
		}
		return err
	})
	if err == errReached {
		return nil
	}
	return err
}

// errReached ends the reading of log objects at a moment.
var errReached = errors.New("the moment is reached")

// follows returns an error unless a log object follows the one before it.
func (r *run) follows(o *object.Object, name string) error {
	switch {
	case r.sum == "" && o.From.Seq > r.replay.Info().Seq:
		return r.gap(name, r.replay.Info().Seq)
	case r.sum != "" && o.From.Seq > r.to.Seq:
		return r.gap(name, r.to.Seq)
	case r.sum != "" && (o.Prev != r.sum || o.From != r.to):
		return &ObjectError{name, fmt.Errorf("%w: it does not follow the object before it", object.ErrDamaged)}
	}
	r.sum, r.to = o.Sum.String(), o.To
	return nil
}

// gap returns the error of a missing object, which would be before the one with the given name.
func (r *run) gap(name string, seq uint64) error {
	missing := name[:len(name)-16] + fmt.Sprintf("%016x", seq)
	return &ObjectError{missing, fmt.Errorf("%w: it is missing", object.ErrDamaged)}
}

// apply applies the entries of an object up to a moment.
func (r *run) apply(name string, es [][]byte, m Moment) error {
	n := len(es)
	for i, e := range es {
		h, err := store.ReadEntry(e)
		if err != nil {
			return entryError(name, err)
		}
		if p := object.PointOf(h.To); m.beyond(p) {
			if r.next == nil {
				r.next = &p
			}
			n = i
			break
		}
		if h.To.Seq() > r.replay.Info().Seq {
			r.entries++
		}
	}
	return entryError(name, r.replay.Apply(es[:n]))
}

// entryError returns the error of an object whose entries cannot be applied. It is not ErrCorrupt:
// no database is damaged.
func entryError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrDiverged):
		err = fmt.Errorf("%w: %s", object.ErrDamaged, err.Error())
	}
	return &ObjectError{name, err}
}
