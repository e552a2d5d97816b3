package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// ErrDiffers is returned when the target has another object under the name of a part of the file of
// a period.
var ErrDiffers = errors.New("archive: an object is damaged, or another writer has made it; move it away")

// periodObject is the name of the local file of a part that is being copied.
const periodObject = "period.object"

// copyTries bounds the tries to send a part while the target does not answer. They take half a
// minute, or longer if each try ends with its deadline.
const copyTries = 6

// CopyPart copies one part of the file of a closed period into the target, unless it is there, and
// reads it back. It reports whether it found the part there, signed by this node: it reports false
// if it may not read, or if another node of the same identity has sent the part. Only one call may
// run at a time. It tries copyTries times while the target does not answer, and returns the errors
// of a target and ErrDiffers.
func (a *Archive) CopyPart(ctx context.Context, file string, of object.FileHeader) (read bool, err error) {
	if of.PartB3, err = partSum(file, of); err != nil {
		return false, err
	}
	p := periodPart{
		Archive: a, file: file, local: filepath.Join(a.d.Dir, periodObject), header: a.periodHeader(of),
	}
	again := func(err error) bool {
		return errors.Is(err, target.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded)
	}
	try := flow.Retry(a.pause, copyTries, again).Counting(a.d.Catalog, Service, "copy")
	err = try.Do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, deadlineOf(of.PartBytes()))
		defer cancel()
		read, err = p.copy(ctx)
		return err
	})
	if p.size > 0 {
		err = errors.Join(err, os.Remove(p.local))
	}
	return read, a.pace(ctx, p.sent, err)
}

// partSum returns the sum of the plain bytes of a part. A part that was made of other bytes, of a
// file that was damaged meanwhile, has another header.
func partSum(file string, of object.FileHeader) (b3.Digest, error) {
	hash := b3.New()
	f, err := os.Open(file)
	if err != nil {
		return b3.Digest{}, err
	}
	_, err = io.Copy(hash, io.NewSectionReader(f, of.Offset(), of.PartBytes()))
	return hash.Sum32(), errors.Join(err, f.Close())
}

// periodHeader returns the header of a part of the file of a period.
func (a *Archive) periodHeader(of object.FileHeader) object.Header {
	info := a.store.Info()
	return object.Header{
		Kind: object.Period, NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema,
		MadeAt: a.d.Now().UTC(), Bytes: of.PartBytes(), File: &of,
	}
}

// HoldsFile reports whether the target has all parts of the file of a period by their names, as far
// as the credentials permit to see it.
func (a *Archive) HoldsFile(ctx context.Context, of object.FileHeader) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	h, parts := a.periodHeader(of), 0
	err := a.target.List(ctx, path.Dir(h.Name())+"/", "", func(target.Item) bool {
		parts++
		return true
	})
	if errors.Is(err, target.ErrDenied) {
		return true, nil
	}
	return parts >= of.Parts(), err
}

// Reach returns nil if the target answers and is that of the node.
func (a *Archive) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	err := a.findCurrent(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer within %s", target.ErrUnreachable, answerIn)
	}
	return err
}

// answerIn bounds a question to the target that a caller waits for.
const answerIn = 10 * time.Second

// findCurrent opens the target as find does, for the line of the node.
func (a *Archive) findCurrent(ctx context.Context) error {
	return a.find(ctx, a.current())
}

// periodPart is a part of the file of a period that is being copied.
type periodPart struct {
	*Archive
	file   string
	local  string // its object
	header object.Header
	known  time.Time // when the target was found to be that of the node
	absent bool      // it was not in the target
	size   int64     // of the object; 0: it is not made
	sent   int64     // bytes; 0: the target did not take it from here
	taken  bool      // the target has its name
}

// copy copies the part. Called again after an error it goes on where that has happened: of several
// calls, the last one may fail each time.
func (p *periodPart) copy(ctx context.Context) (read bool, err error) {
	if time.Since(p.known) > knownFor {
		if err := p.findCurrent(ctx); err != nil {
			return false, err
		}
		p.known = time.Now()
	}
	if !p.absent {
		read, err = p.there(ctx)
		if !errors.Is(err, target.ErrNotExist) && !errors.Is(err, target.ErrDenied) {
			return read, err
		}
		p.absent = true
	}
	if !p.taken {
		if err := p.create(ctx); err != nil {
			return false, err
		}
	}
	read, err = p.there(ctx)
	if errors.Is(err, target.ErrDenied) { // some servers answer so of what is not there, too
		return false, nil
	}
	return read, err
}

// create makes the object and gives it to the target. The name may be taken.
func (p *periodPart) create(ctx context.Context) error {
	if err := p.seal(); err != nil {
		return err
	}
	err := p.target.Create(ctx, p.header.Name(), p.local)
	if p.taken = err == nil || errors.Is(err, target.ErrExists); !p.taken {
		p.series.unsent[object.Period](1)
		return err
	}
	if err != nil {
		return nil
	}
	p.sent = p.size
	p.series.sent[object.Period](1)
	p.series.bytes[object.Period](int(p.size))
	return p.record.update(func(r *record) { r.LastSuccess = p.d.Now() })
}

// there returns nil if the target has the part, and reports whether this node has signed it.
func (p *periodPart) there(ctx context.Context) (own bool, err error) {
	name := p.header.Name()
	raw, err := p.target.Read(ctx, name, 0, object.MaxObject+1)
	if err != nil {
		return false, err
	}
	o, err := object.Parse(raw)
	switch {
	case errors.Is(err, object.ErrFormat):
		return false, err
	case err != nil:
		return false, fmt.Errorf("%w: %s: %w", ErrDiffers, name, err)
	case o.Name() != name || *o.File != *p.header.File:
		return false, fmt.Errorf("%w: %s", ErrDiffers, name)
	}
	return o.Signer == p.key.Load().Signer(), nil
}

// seal makes the object.
func (p *periodPart) seal() error {
	if p.size > 0 {
		return nil
	}
	f, err := os.Open(p.file)
	if err != nil {
		return err
	}
	hash := b3.New()
	plain := io.TeeReader(io.NewSectionReader(f, p.header.File.Offset(), p.header.Bytes), hash)
	_, err = p.writeObject(p.local, p.header, plain)
	if err == nil && hash.Sum32() != p.header.File.PartB3 {
		err = errors.Join(fmt.Errorf("%s is changed while it is copied", p.file), os.Remove(p.local))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	st, err := os.Stat(p.local)
	if err == nil {
		p.size = st.Size()
	}
	return err
}
