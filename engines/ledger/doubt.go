package ledger

import (
	"context"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// doubt is the command that notes in the file why nothing is written any more, or with "" that all of it was verified since. A ledger that met
// damage where a boot does not look must not be written after the next start as if nothing had been.
type doubt struct{ why string }

// Kind names the command.
func (doubt) Kind() string { return "ledger.doubt/1" }

// Apply writes the note.
func (c doubt) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	tables.PutDoubt(w, c.why)
	return struct{}{}, nil
}

// noteDoubt notes safe mode in the file, once. A store that takes nothing now is asked again at the next tick.
func (l *Local) noteDoubt(ctx context.Context) {
	why := l.SafeMode()
	if why == "" || l.noted.Load() {
		return
	}
	if _, err := store.Commit(ctx, l.store, store.Bulk, doubt{why}); err == nil {
		l.noted.Store(true)
	}
}

// readDoubt takes over the note of an earlier run.
func (l *Local) readDoubt(r store.Reader) error {
	l.doubt = tables.GetDoubt(r)
	l.noted.Store(l.doubt != "")
	return nil
}

// endDoubt takes the note out of a file that was verified as a whole and found sound.
func (l *Local) endDoubt(ctx context.Context) {
	if l.doubt == "" {
		return
	}
	if _, err := store.Commit(ctx, l.store, store.Bulk, doubt{}); err != nil {
		l.log.Warn("note_of_safe_mode_stays", "reason", err.Error()) // the next boot verifies everything once more
		return
	}
	l.noted.Store(false)
	l.log.Info("safe_mode_ended", "was", l.doubt)
}
