package period

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Archive keeps copies of the files of closed periods off the machine.
type Archive interface {
	// Reach returns nil if the archive answers.
	Reach(ctx context.Context) error
	// Holds reports whether the archive has the file of a period, as far as it permits to see it.
	Holds(ctx context.Context, p *tables.Period) (bool, error)
	// Parts returns the number of parts that the copy of a file of so many bytes has.
	Parts(bytes uint64) int
	// CopyPart copies a part of the file of a period, unless it is there, and reads it back. It
	// reports whether it could: the archive may not permit it. It tries for some time if the
	// archive does not answer.
	CopyPart(ctx context.Context, p *tables.Period, part int) (read bool, err error)
}

// copy copies the file into the archive, if there is one.
func (c *Closer) copy(ctx context.Context, closing *tables.Closing) error {
	row := &closing.File
	if c.d.Archive == nil {
		return Turn(ctx, c.d.Store, closing.Period, closing.Step, tables.Sealing, nil)
	}
	if has, err := c.hasFile(ctx, closing); err != nil {
		return err
	} else if !has {
		return Turn(ctx, c.d.Store, closing.Period, closing.Step, tables.Exporting, nil)
	}
	c.keeper.read = 0
	read, rest := true, c.rester(closing)
	total := c.d.Archive.Parts(row.Bytes)
	for part := range total {
		c.stage.Store(&stage{closing: *closing, step: tables.Copying, done: uint64(part), total: uint64(total)})
		c.slice = c.d.Now()
		one := false
		err := c.beside(ctx, closing, func(ctx context.Context) (err error) {
			one, err = c.d.Archive.CopyPart(ctx, row, part)
			return err
		})
		if errors.Is(err, errCanceled) {
			return err
		}
		if err != nil {
			return fmt.Errorf("copy the file into the archive: %w", err)
		}
		if read = read && one; rest != nil {
			rest(ctx)
		}
	}
	if read {
		c.keeper.read = closing.Attempt
	}
	copied := func(c *tables.Closing) { c.File.Copies = 1 }
	return Turn(ctx, c.d.Store, closing.Period, closing.Step, tables.Sealing, copied)
}

// isFile reports whether the file of a period is there and has its sum.
func isFile(ctx context.Context, p *tables.Period) (bool, error) {
	f, err := os.Open(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	hash := b3.New()
	_, err = io.Copy(hash, reader{ctx, f})
	return hash.Sum32() == p.FileB3, errors.Join(err, f.Close())
}

// Errors of the file of a closed period.
var (
	// errOnlyCopy is returned for a file of which no good copy is known.
	errOnlyCopy = errors.New("the file is missing here or damaged, and is not known to be in the archive")
	errChanged  = errors.New("the file was changed while it was copied")
)

// keeper looks after the files of closed periods: that they are in the archive, and that those go
// which are to be there alone. It is owned by the task.
type keeper struct {
	cfg   *Config            // that it goes by
	next  time.Time          // when it looks again
	left  map[uint64]bool    // periods for which nothing more can be done
	told  map[uint64]bool    // periods whose file is not there
	begun map[uint64]copying // of periods whose copy was interrupted by an error
	read  uint64             // the last attempt of a closing whose copy was read back
	from  uint64             // period that it begins with: one before it has failed
	older bool               // those before are to be looked at, too
	n     uint64             // period at hand; 0: none
	row   tables.Period      // of it
	held  bool               // the archive has it, and it is only read back

	copying // of the period at hand
}

// copying holds the progress of the copy of a file.
type copying struct {
	part   int  // to be copied next
	own    bool // the parts before were read back
	broken bool // an error came between them, and the archive may have lost some since
}

// keep copies a part of a file that the archive does not have, and reports whether there is more to
// do. With Config.Away it also reads copies back, to remove the files.
func (c *Closer) keep(ctx context.Context, closing *tables.Closing) (again bool) {
	k, cfg, now := &c.keeper, c.cfg.Load(), c.d.Now()
	if c.d.Archive == nil {
		return false
	}
	if k.cfg != cfg {
		*k = keeper{
			cfg: cfg, left: map[uint64]bool{}, told: map[uint64]bool{}, begun: map[uint64]copying{}, read: k.read,
		}
	}
	if k.n == 0 && now.Before(k.next) && k.next.Sub(now) <= lookEvery {
		return false
	}
	again, err := c.keepPart(ctx, closing)
	if errors.Is(err, errCanceled) {
		return true // a closing has begun, or the dropping has ended: it goes on after that
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return false
	case err != nil:
		c.d.Log.Warn("ledger_period_not_copied", "period", k.n, "reason", err.Error(), "next", "tried in an hour")
		delete(k.begun, k.n)
		if !k.held && !errors.Is(err, errChanged) {
			k.broken = true
			k.begun[k.n] = k.copying
		}
		k.from, k.older, k.n, k.next = k.n+1, true, 0, now.Add(lookEvery) // the others first
		return false
	case !again && k.older:
		k.from, k.older = 0, false
		return true
	case !again:
		k.from, k.next = 0, now.Add(lookEvery)
	}
	return again
}

// keepPart does one step of keep.
func (c *Closer) keepPart(ctx context.Context, closing *tables.Closing) (again bool, err error) {
	k := &c.keeper
	if k.n == 0 {
		return c.pick(ctx, closing)
	}
	if k.part >= c.d.Archive.Parts(k.row.Bytes) {
		return true, c.kept(ctx, closing)
	}
	c.slice = c.d.Now()
	own := false
	err = c.beside(ctx, closing, func(ctx context.Context) (err error) {
		own, err = c.d.Archive.CopyPart(ctx, &k.row, k.part)
		return err
	})
	if err != nil {
		return false, err
	}
	if rest := c.rester(closing); rest != nil {
		rest(ctx)
	}
	if k.own = k.own && own; k.held && !own { // another node has made it, or it cannot be read
		k.left[k.n], k.n = true, 0
		return true, nil
	}
	k.part++
	return true, nil
}

// pick takes the next period, unless nothing is to be done for its file, and reports whether there
// was one.
func (c *Closer) pick(ctx context.Context, closing *tables.Closing) (found bool, err error) {
	k := &c.keeper
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		found = false
		for n, row := range tables.Periods(r, k.from) {
			row.File = inDir(c.cfg.Load().Dir, row.File)
			if !k.left[n] {
				found, k.n, k.row, k.held, k.copying = true, n, row, false, copying{own: true}
				return nil
			}
		}
		return nil
	})
	if err != nil || !found {
		return false, err
	}
	if begun, known := k.begun[k.n]; known {
		k.copying = begun
	}
	needs := false
	err = c.beside(ctx, closing, func(ctx context.Context) (err error) {
		needs, err = c.needs(ctx, &k.row)
		return err
	})
	switch {
	case errors.Is(err, errCanceled):
		k.n = 0
	case errors.Is(err, errOnlyCopy): // its disk may be mounted later
		if !k.told[k.n] {
			c.d.Log.Warn("ledger_period_not_copied", "period", k.n, "file", k.row.File, "reason", err.Error())
		}
		k.told[k.n], k.from, k.n = true, k.n+1, 0
		err = nil
	case !needs && err == nil:
		k.left[k.n], k.n = true, 0
	case k.held:
		k.copying = copying{own: true}
	}
	return true, err
}

// needs reports whether a file has to be copied, or may go. One that is in the archive, and not
// here or damaged, needs nothing.
func (c *Closer) needs(ctx context.Context, p *tables.Period) (needs bool, err error) {
	held, err := c.holds(ctx, p)
	c.keeper.held = held && p.Copies > 0 // else it was not seen whole, or another leader has copied it
	if err != nil || c.keeper.held && !c.away(p) {
		return false, err
	}
	same, err := isFile(ctx, p)
	if err == nil && !same && (!held || p.Copies == 0) {
		err = errOnlyCopy
	}
	return same, err
}

// holds reports whether the archive, which is that of the node, has the file of a period, as far as
// it permits to see it.
func (c *Closer) holds(ctx context.Context, p *tables.Period) (bool, error) {
	if err := c.d.Archive.Reach(ctx); err != nil {
		return false, err
	}
	return c.d.Archive.Holds(ctx, p)
}

// kept ends the work on the period at hand: all parts of its file were copied, or read back. Those
// of before an error may be lost since. A file is removed only after a pass that read all parts
// back without an error.
func (c *Closer) kept(ctx context.Context, closing *tables.Closing) error {
	k := &c.keeper
	n, row := k.n, &k.row
	held, same := true, false
	err := c.beside(ctx, closing, func(ctx context.Context) (err error) {
		if k.broken {
			held, err = c.holds(ctx, row)
		}
		if err == nil {
			same, err = isFile(ctx, row)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !same:
		return errChanged
	case !held:
		k.copying = copying{own: true}
		return nil
	}
	if row.Copies == 0 {
		err := commit(ctx, c.d.Store, change{
			kind: "ledger.close_copied/1", size: 8 << 10,
			fill: func(r store.Reader, w *store.Writes) error {
				if now, known := tables.GetPeriod(r, n); known && now.FileB3 == row.FileB3 {
					now.Copies = 1
					tables.PutPeriod(w, n, now)
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		c.d.Log.Info("ledger_period_copied", "period", n, "file", row.File)
		row.Copies = 1
	}
	delete(k.begun, n)
	if k.own && k.broken && c.away(row) {
		k.held, k.copying = true, copying{own: true}
		return nil
	}
	if k.own {
		if err := c.remove(row); err != nil {
			return err
		}
	}
	k.n, k.left[n] = 0, true
	return nil
}

// away reports whether the file of a period is to be in the archive alone. One in a folder that was
// named for its closing stays there.
func (c *Closer) away(p *tables.Period) bool {
	cfg := c.cfg.Load()
	return cfg.Away && filepath.Dir(p.File) == cfg.Dir
}

// release removes the file of a closed period whose copy was read back, if it is to be in the
// archive alone. A file that was changed while it was copied stays.
func (c *Closer) release(ctx context.Context, p *tables.Period) error {
	if !c.away(p) {
		return nil
	}
	if same, err := isFile(ctx, p); err != nil || !same {
		return errors.Join(err, errChanged)
	}
	return c.remove(p)
}

// remove removes the file of a closed period, if it is to be in the archive alone.
func (c *Closer) remove(p *tables.Period) error {
	if !c.away(p) {
		return nil
	}
	err := os.Remove(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		c.d.Log.Info("ledger_period_file_removed", "file", p.File, "reason", "the archive has it")
	}
	return err
}
