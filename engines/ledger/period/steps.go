package period

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// build makes the base.
func (c *Closer) build(ctx context.Context, closing *tables.Closing) error {
	c.slice = c.d.Now()
	return Build(ctx, c.d.Store, c.rester(closing), func(done, total uint64) {
		c.stage.Store(&stage{closing: *closing, step: tables.Building, done: done, total: total})
	})
}

// hasFile reports whether the file of a closing is there as it should; otherwise it is written
// anew. A file that this process has not written itself, because of a restart, a restore or another
// leader, is read again.
func (c *Closer) hasFile(ctx context.Context, closing *tables.Closing) (bool, error) {
	path := closing.File.File
	info, err := os.Stat(path) // the folder may be another one since
	if c.wrote == closing.Attempt && err == nil && uint64(info.Size()) == closing.File.Bytes {
		return true, nil
	}
	found, err := c.readBack(ctx, closing, path)
	if ctx.Err() != nil || errors.Is(err, errCanceled) {
		return false, err
	}
	has := err == nil && found.file == closing.File.FileB3
	if has {
		c.wrote = closing.Attempt
	} else {
		c.d.Log.Warn("ledger_period_file_missing", "file", path, "next", "it is written again")
	}
	return has, nil
}

// readBack reads a file, and drops rows meanwhile.
func (c *Closer) readBack(ctx context.Context, closing *tables.Closing, path string) (found sums, err error) {
	err = c.beside(ctx, closing, func(ctx context.Context) (err error) {
		found, err = readBack(ctx, path)
		return err
	})
	return found, err
}

// seal closes the period, and reports whether another step may follow at once. It waits while keys
// count for the records of the period.
func (c *Closer) seal(ctx context.Context, closing *tables.Closing) (again bool, err error) {
	waits := c.waits(closing) != nil
	if age := c.d.Now().Sub(c.sealed); waits && age >= 0 && age < retryAfter {
		again, _ = c.drop(ctx, closing) // an error shows in the next step
		return again, nil
	}
	defer func() { c.sealed = c.d.Now() }()
	if has, err := c.hasFile(ctx, closing); err != nil {
		return false, err
	} else if !has {
		return true, Turn(ctx, c.d.Store, closing.Period, closing.Step, tables.Exporting, nil)
	}
	h, err := ledger.ClosePeriod(ctx, c.d.Store, closing.Period)
	if errors.Is(err, ledger.ErrKeys) {
		if !waits {
			c.d.Log.Warn("ledger_close_waits", "period", closing.Period, "reason", err.Error())
			c.failed.Store(&Failure{
				Period: closing.Period, File: closing.File.File, Err: err, At: c.d.Now(), waits: closing.Attempt,
			})
		}
		c.keeper.read = 0 // the archive may lose the copy meanwhile
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.failed.Store(nil)
	c.due.Store(nil) // until it is looked for the next one
	if c.keeper.read == closing.Attempt {
		if err := c.release(ctx, &closing.File); err != nil {
			c.d.Log.Warn("ledger_period_file_stays", "file", closing.File.File, "reason", err.Error())
		}
	}
	c.m.closed("ok")
	c.d.Log.Info("ledger_closed", "period", h.Period, "to_seq", h.Seq, "statement", h.Statement.String(), "file",
		closing.File.File)
	return true, nil
}

// write writes the file and checks what the disk has of it.
func (c *Closer) write(ctx context.Context, closing *tables.Closing) error {
	c.slice = c.d.Now()
	total := closing.Seq - c.horizon.Load().Seq
	tell := func(step tables.CloseStep, done uint64) {
		c.stage.Store(&stage{closing: *closing, step: step, done: done, total: total})
	}
	x := &exporter{store: c.d.Store, c: *closing, rest: c.rester(closing)}
	x.tell = func(done uint64) { tell(tables.Exporting, done) }
	path := closing.File.File
	cfg := c.cfg.Load()
	written, err := write(ctx, x, path, cfg.Make && filepath.Dir(path) == cfg.Dir)
	if err != nil {
		return writable(err, filepath.Dir(path))
	}
	tell(tables.Checking, 0)
	if err := c.check(ctx, closing, x.rest, func(done, _ uint64) { tell(tables.Checking, done) }); err != nil {
		_ = os.Remove(path + partial)
		return err
	}
	found, err := c.readBack(ctx, closing, path+partial)
	if err == nil && found != written {
		err = fmt.Errorf("%w: %s reads otherwise than it was written", store.ErrCorrupt, path)
	}
	if err == nil {
		written, err = c.place(ctx, closing, written)
	}
	if err == nil {
		err = Turn(ctx, c.d.Store, closing.Period, closing.Step, tables.Copying, written.note)
	}
	if err == nil {
		c.wrote = closing.Attempt
		return nil
	}
	_ = os.Remove(path + partial)
	if errors.Is(err, errCanceled) {
		if is, _ := unused(ctx, c.d.Store, closing.Period); is {
			discard(c.d.Store, closing) // it was placed after a caller had canceled
		}
	}
	return err
}

// place gives the file its name. Before that the row of the closing says so, if there is no file
// yet: whatever ends the closing without a closed period can then remove the file.
func (c *Closer) place(ctx context.Context, closing *tables.Closing, written sums) (sums, error) {
	path := closing.File.File
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		by := c.d.Store.Info().Incarnation
		mark := func(c *tables.Closing) {
			written.note(c)
			c.Placed = by
		}
		if err := Turn(ctx, c.d.Store, closing.Period, closing.Step, closing.Step, mark); err != nil {
			return written, err
		}
		mark(closing)
	}
	found, err := place(ctx, path, written)
	if _, differs := errors.AsType[*DiffersError](err); differs && closing.Placed != "" {
		forget := func(c *tables.Closing) { c.Placed = "" } // somebody else was faster
		forget(closing)
		err = errors.Join(err, Turn(ctx, c.d.Store, closing.Period, closing.Step, closing.Step, forget))
	}
	return found, err
}

// check verifies the records of the period, and compares the base and the statement with them.
func (c *Closer) check(ctx context.Context, closing *tables.Closing, rest func(context.Context),
	tell func(done, total uint64),
) error {
	view := func(ctx context.Context, fn func(r store.Reader) error) error {
		if rest != nil {
			rest(ctx)
		}
		return c.d.Store.View(ctx, func(r store.Reader) error {
			if err := goesOn(r, closing); err != nil {
				return err
			}
			return fn(r)
		})
	}
	rep, err := lverify.Closing(ctx, view, lverify.Options{Progress: tell})
	if err == nil && !rep.OK {
		err = fmt.Errorf("%w: %v", store.ErrCorrupt, rep.Findings[0])
	}
	return err
}
