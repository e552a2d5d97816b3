package ledger

import (
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// books are the ledger's memory beside the file. The committer owns them: it changes them while a group runs, and publishes or drops the
// change when the group has ended. Readers see what was published, through the layers and the view.
type books struct {
	loaded atomic.Bool // Recover has filled them: until then nobody reads them, and no command but of Recover itself comes
	barred atomic.Bool // safe mode: what is queued is refused too

	states   *layer[tables.StateKey, balance]
	accounts *layer[uint64, tables.Account]
	names    *layer[string, uint64] // of accounts; 0 is not known
	refs     *layer[uint64, string]
	holds    *layer[uint64, tables.Hold]
	onces    *layer[tables.OnceKey, tables.Once]
	moved    *layer[tables.MovedKey, engines.Amount] // never behind its table: the command that changes a row writes it
	idem     *idem.Index

	// What a boot found; immutable after it.
	broken   map[tables.StateKey]error // recent rows that do not decode; a ledger that has any writes nothing
	nobody   error                     // a recent row of which nobody knows whose it is
	rowsTo   uint64                    // the record up to which the rows were brought
	keysRead bool                      // all idempotency keys that count, and the key of their hashes

	cur    tip                 // with the running group
	before tip                 // as the running command found it
	view   atomic.Pointer[tip] // what readers see

	run    run
	arena  arena
	busy   bool        // the group has a command of the ledger
	open   bool        // a command runs whose changes are not the group's yet
	keep   func()      // merges the running command: made once, so that a command need not
	events []Committed // of the group's batches
	event  Committed   // of the running command's batch; Batch 0: none
	told   listener
	clean  int // rows that are as in the file a layer keeps
}

// listener is told of the batches of each group that is in the file, by the committer: it must not wait.
type listener interface {
	committed([]Committed)
}

// balance is a row of the states with the marks that came up since it was last flushed.
type balance struct {
	tables.Balance
	marks []tables.Mark
}

var _ store.Group = (*books)(nil)

func newBooks(index *idem.Index, told listener) *books {
	b := &books{
		states:   newLayer[tables.StateKey, balance](func(k tables.StateKey) uint64 { return k.Account<<8 ^ uint64(k.Asset) }),
		accounts: newLayer[uint64, tables.Account](same), names: newLayer[string, uint64](spreadString), refs: newLayer[uint64, string](same),
		holds: newLayer[uint64, tables.Hold](same), onces: newLayer[tables.OnceKey, tables.Once](spreadOnce),
		moved: newLayer[tables.MovedKey, engines.Amount](spreadMoved),
		idem:  index, told: told, clean: cleanRows,
	}
	b.cur.assets = &assets{}
	b.keep = b.merge
	b.run.b = b
	b.show()
	return b
}

func same(n uint64) uint64 { return n }

// spreadString is FNV-1a over the last bytes of a name: names that a program makes differ there.
func spreadString(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := max(0, len(s)-16); i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

func spreadOnce(k tables.OnceKey) uint64 { return uint64(k.Key[0]) | uint64(k.Key[1])<<8 }

func spreadMoved(k tables.MovedKey) uint64 { return uint64(k.Token[0]) | uint64(k.Token[1])<<8 }

// Begin has nothing to do: there is no tentative layer until a command of the ledger comes.
func (b *books) Begin() {}

// Committed publishes what the group did: rows first, then the tip, then what leads to its records.
func (b *books) Committed() {
	if !b.busy {
		return
	}
	b.undo()
	b.each(layers.publish)
	b.show()
	b.idem.Committed()
	b.told.committed(b.events)
	b.close()
}

// Aborted drops what the group did.
func (b *books) Aborted() {
	if !b.busy {
		return
	}
	b.undo()
	b.each(layers.drop)
	b.idem.Aborted()
	b.cur = *b.view.Load()
	b.close()
}

func (b *books) show() {
	t := b.cur
	b.view.Store(&t)
}

// cleanRows is how many rows that are as in the file a layer keeps: some 20 MB of balances.
const cleanRows = 65_536

// close ends a group.
func (b *books) close() {
	for _, l := range b.all() {
		l.evict(b.clean)
	}
	clear(b.events)
	b.events, b.busy = b.events[:0], false
	b.arena.reset()
}

// begin opens the books to a command. What one before it has left undone, since it was refused or panicked, is undone first.
func (b *books) begin() {
	b.undo()
	b.busy, b.open, b.before, b.event = true, true, b.cur, Committed{}
}

// undo takes back what the running command did, if it was not merged.
func (b *books) undo() {
	if !b.open {
		return
	}
	b.back(savepoint{})
	b.cur, b.open = b.before, false
}

// merge makes the running command's changes the group's.
func (b *books) merge() {
	b.each(layers.keep)
	b.run.merge()
	if b.event.Batch != 0 {
		b.events = append(b.events, b.event)
	}
	b.open = false
}

// layers is what all layers can do, whatever they hold.
type layers interface {
	publish()
	drop()
	keep()
	mark() int
	back(int)
	evict(most int)
}

func (b *books) all() [7]layers {
	return [...]layers{b.states, b.accounts, b.names, b.refs, b.holds, b.onces, b.moved}
}

func (b *books) each(fn func(layers)) {
	for _, l := range b.all() {
		fn(l)
	}
}

// savepoint is where the running command's changes stood; the zero savepoint is its beginning.
type savepoint struct {
	marks [7]int
}

func (b *books) save() (s savepoint) {
	for i, l := range b.all() {
		s.marks[i] = l.mark()
	}
	return s
}

func (b *books) back(s savepoint) {
	for i, l := range b.all() {
		l.back(s.marks[i])
	}
}

// digest16 is the first half of a digest.
func digest16(d b3.Digest) (k [16]byte) {
	copy(k[:], d[:])
	return k
}
