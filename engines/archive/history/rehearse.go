package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
)

// Drill is the result of a restore that was done to prove that it can be done.
type Drill struct {
	Restored Restored
	Bases    int           // proven by the base before them and the log
	Took     time.Duration // of the restore of the newest moment: the RTO
	Behind   time.Duration // age of the newest moment: the RPO; 0 if it is ahead
	Ahead    time.Duration // of now, of a newest moment whose clock ran ahead by more than a minute
}

// Rehearse restores the newest moment into a temporary directory below dir, proves it, and removes
// it. For each base of the line but the first, the base before it and the log must give its state
// hash.
func (a *Archive) Rehearse(ctx context.Context, dir string, now time.Time, o Options) (d Drill, err error) {
	temp, err := os.MkdirTemp(dir, "ronbox-archive-")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	began := time.Now()
	if d.Restored, err = a.Restore(ctx, temp, Moment{Latest: true}, o); err != nil {
		return d, err
	}
	d.Took = time.Since(began)
	switch age := now.Sub(d.Restored.Reached.Time()); {
	case age >= 0:
		d.Behind = age
	case -age > time.Minute:
		d.Ahead = -age
	}
	for _, l := range a.Lines {
		if l.ID == d.Restored.Line {
			d.Bases, err = a.proveBases(ctx, temp, l, o)
		}
	}
	return d, err
}

// proveBases replays the log from each base to the next, but not from one that a prune deletes.
func (a *Archive) proveBases(ctx context.Context, dir string, l *Line, o Options) (proven int, err error) {
	s, err := a.Span(ctx, l)
	if err != nil || s == nil { // a prune has deleted the line
		return 0, err
	}
	for i := range s.Whole[1:] {
		to := s.points[i+1]
		if to.Seq > s.logged {
			break // the log up to it is not there yet
		}
		own := filepath.Join(dir, fmt.Sprintf("base-%d", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return proven, err
		}
		run := &run{a: a, o: o, signer: s.Signer, temp: filepath.Join(own, "base"+partial)}
		err := run.prove(ctx, l, s, i, to)
		if errors.Is(err, target.ErrNotExist) {
			pruned, bad := a.pruned(ctx, l, s.Whole[i].Parts[0].Name)
			if pruned {
				continue
			}
			err = errors.Join(err, bad)
		}
		if err != nil {
			return proven, err
		}
		proven++
	}
	return proven, nil
}

// prove restores base i, applies the log up to the next base, and compares the state hashes.
func (r *run) prove(ctx context.Context, l *Line, s *Span, i int, to object.Point) error {
	if _, err := r.base(ctx, &s.Whole[i], s.points[i]); err != nil {
		return err
	}
	m := Moment{Seq: to.Seq}
	logs, err := r.a.logs(ctx, l, s.Whole[i].Seq, m)
	if err == nil {
		err = r.logs(ctx, logs, m)
	}
	if err != nil {
		return errors.Join(err, r.replay.Close())
	}
	got, err := r.replay.Publish(ctx, nil, nil, r.progress("prove"))
	if err != nil {
		return err
	}
	_, plain, err := r.open(ctx, s.Whole[i+1].Parts[0].Item)
	if err != nil {
		return err
	}
	want, _, err := cutManifest(plain)
	if err == nil && (got.StateHash != want.StateHash || got.Seq != want.Seq) {
		err = fmt.Errorf("%w: the base before it and the log lead to state %s, not to %s", object.ErrDamaged,
			got.StateHash, want.StateHash)
	}
	if err != nil {
		return &ObjectError{s.Whole[i+1].Parts[0].Name, err}
	}
	return errors.Join(os.Remove(got.Path), os.Remove(got.ManifestPath))
}
