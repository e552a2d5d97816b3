package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/archive"
	"ronbox/engines/archive/object"
	"ronbox/engines/archive/target"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Archive is the archive of a node, which may be off.
type Archive struct {
	d     ArchiveDeps
	of    *archive.Archive // nil: off
	bound bool
}

// ArchiveDeps are the neighbours of an Archive.
type ArchiveDeps struct {
	Config   *config.Config // given at the start
	Catalog  *flow.Catalog
	Metrics  *obs.Metrics
	Log      hclog.Logger
	Now      func() time.Time
	Versions map[string]string
	Note     func(context.Context, store.Event) // appends an audit row
	Based    func(time.Time)                    // called when a base is complete
}

// NewArchive returns the archive of a node. It opens and starts nothing.
func NewArchive(d ArchiveDeps) (*Archive, error) {
	d.Metrics.Declare(archive.Families()...)
	a := &Archive{d: d}
	if !d.Config.Archive.On() {
		return a, nil
	}
	var err error
	a.of, err = archive.New(d.Config.Archive, archive.Deps{
		Dir: d.Config.Path(archive.Folder), Catalog: d.Catalog, Metrics: d.Metrics, Log: d.Log.Named(archive.Service),
		Now: d.Now, Versions: d.Versions, Based: d.Based,
	})
	return a, err
}

// Tap returns the tap for the options of the store, or nil.
func (a *Archive) Tap() store.Tap {
	if a.of == nil {
		return nil
	}
	return a.of.Tap()
}

// Bind begins to capture, before the committer runs. A node whose archive cannot read its local
// files runs without it.
func (a *Archive) Bind(s *store.Store) {
	if a.of == nil {
		return
	}
	if err := a.of.Bind(s); err != nil {
		a.d.Log.Error("archive_off", "reason", err.Error(), "effect", "changes are not kept off this machine",
			"next", "correct the fault, then restart the node")
		return
	}
	a.bound = true
}

// Tasks returns the tasks of the archive.
func (a *Archive) Tasks() []flow.Task {
	if a.of == nil {
		return nil
	}
	all := a.of.Tasks()
	for i := range all {
		run := all[i].Run
		all[i].Run = func(ctx context.Context) error {
			if !a.bound {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return run(ctx)
		}
	}
	return all
}

// Reload applies new values.
func (a *Archive) Reload(c *config.Config) {
	if a.of != nil {
		a.of.Reload(c.Archive)
	}
}

// Close closes the local files, after the committer has ended.
func (a *Archive) Close() error {
	if a.of == nil || !a.bound {
		return nil
	}
	return a.of.Close()
}

// Status returns the state of the archive.
func (a *Archive) Status() nodeapi.Archive {
	if a.of == nil {
		return nodeapi.Archive{State: string(archive.StateOff)}
	}
	s := a.of.Status()
	return nodeapi.Archive{
		State: string(s.State), Target: s.Target, Line: s.Line, Signer: s.Signer, Seq: s.Seq, SentSeq: s.SentSeq,
		SentAt: s.SentAt, LagSeconds: s.Lag.Seconds(), UnsentBytes: s.Unsent, LocalBytes: s.Local, BaseSeq: s.BaseSeq,
		BaseAt: s.BaseAt, BaseParts: s.BaseParts, BasePartsSent: s.PartsSent, LastSuccess: s.LastSuccess,
		LastError: s.LastError, Advice: s.Advice,
	}
}

// Base takes a base, waits until it is in the target and appends an audit row.
func (a *Archive) Base(
	ctx context.Context, by engines.Actor, corrID string, progress func(nodeapi.ArchiveLine),
) (nodeapi.Archive, error) {
	if a.of == nil || !a.bound {
		return nodeapi.Archive{}, nodehttp.ErrArchiveOff
	}
	s, err := a.of.Base(ctx, func(stage string, done, total int64) {
		progress(nodeapi.ArchiveLine{Stage: stage, Done: done, Total: total})
	})
	if err != nil {
		return nodeapi.Archive{}, archiveError(err)
	}
	a.d.Note(context.WithoutCancel(ctx), tokens.AuditEvent("archive.base", by, corrID, map[string]string{
		"line": s.Line, "seq": fmt.Sprint(s.BaseSeq),
	}))
	return a.Status(), nil
}

// Periods returns what keeps files of closed periods of the ledger, or nil if there is no archive.
func (a *Archive) Periods() period.Archive {
	if a.of == nil {
		return nil
	}
	return periodFiles{a}
}

// periodFiles copies files of closed periods.
type periodFiles struct{ *Archive }

// Reach implements period.Archive.
func (f periodFiles) Reach(ctx context.Context) error {
	if !f.bound {
		return fmt.Errorf("%w: see `ronbox archive status`", nodehttp.ErrArchiveLocal)
	}
	return archiveError(f.of.Reach(ctx))
}

// Parts implements period.Archive.
func (periodFiles) Parts(bytes uint64) int {
	f := object.FileHeader{Bytes: int64(bytes)}
	return f.Parts()
}

// Holds implements period.Archive.
func (f periodFiles) Holds(ctx context.Context, p *tables.Period) (bool, error) {
	h, err := f.header(p)
	if err != nil {
		return false, err
	}
	return f.of.HoldsFile(ctx, h)
}

// CopyPart implements period.Archive.
func (f periodFiles) CopyPart(ctx context.Context, p *tables.Period, part int) (read bool, err error) {
	h, err := f.header(p)
	if err != nil {
		return false, err
	}
	h.Part = part
	return f.of.CopyPart(ctx, p.File, h)
}

// header returns the header of the first part of the file of a period.
func (f periodFiles) header(p *tables.Period) (h object.FileHeader, err error) {
	if !f.bound {
		return h, fmt.Errorf("%w: see `ronbox archive status`", nodehttp.ErrArchiveLocal)
	}
	s, err := record.ParseStatement(p.Statement)
	return object.FileHeader{
		Period: s.Period, Statement: s.Digest(), Before: s.Prev, B3: p.FileB3, Bytes: int64(p.Bytes),
	}, err
}

// archiveError returns an error of Base as the routes know it.
func archiveError(err error) error {
	_, local := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, archive.ErrBusy):
		return nodehttp.ErrArchiveBusy
	case errors.Is(err, store.ErrFull):
		return err
	case target.Is(err):
		return fmt.Errorf("%w: %w", nodehttp.ErrArchiveTarget, err)
	case local:
		return fmt.Errorf("%w: %w", nodehttp.ErrArchiveLocal, err)
	}
	return err
}
