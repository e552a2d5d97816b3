package ledger

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// books are the ledger's memory beside the file. The committer owns them. It changes them while a
// group runs, and publishes or drops the changes at the end of the group. Readers see published
// rows through the layers, and the published tip through view.
type books struct {
	// Recover has filled them: until then nobody reads them, and no command but of Recover itself
	// comes
	loaded atomic.Bool
	barred atomic.Bool // safe mode: queued commands are refused too

	states   *layer[tables.StateKey, tables.Balance]
	accounts *layer[uint64, tables.Account]
	names    *layer[string, uint64] // of accounts; 0 is not known
	refs     *layer[uint64, string]
	holds    *layer[uint64, tables.Hold]
	onces    *layer[tables.OnceKey, tables.Once]
	marks    *layer[tables.MarkKey, uint64]
	moved    *layer[tables.MovedKey, engines.Amount] // never behind its table: the command that changes a row writes it
	layers   [layerCount]layerOf                     // all of the above
	idem     *idem.Index

	// What a boot found; immutable after it.
	broken   map[tables.StateKey]error // recent rows that do not decode; a ledger that has any writes nothing
	nobody   error                     // a recent row with a damaged key
	rowsTo   uint64                    // the record up to which the rows were brought
	keysRead bool                      // all idempotency keys that count, and the key of their hashes

	cur    tip                 // with the running group
	before tip                 // as the running command found it
	view   atomic.Pointer[tip] // what readers see

	run     run
	changes tables.Changes // of the record at hand
	arena   arena
	busy    bool        // the group has a command of the ledger
	open    bool        // a command runs, and its changes are not merged yet
	keep    func()      // merges the running command: made once, so that a command need not
	events  []Committed // of the group's batches
	event   Committed   // of the running command's batch; Batch 0: none
	told    listener
	budget  atomic.Int64  // bytes that rows and names may take
	named   *atomic.Int64 // bytes that the cache of names takes
	clean   int64         // rows that are as in the file a layer keeps at most
	soonest soonest
}

// listener is told of the batches of each group that is in the file, by the committer: it must not
// wait.
type listener interface {
	committed([]Committed)
	keyLife() int64
}

// layerCount is the number of layers of the books.
const layerCount = 8

var _ store.Group = (*books)(nil)

func newBooks(index *idem.Index, told listener) *books {
	number := func(n uint64) uint64 { return n }
	b := &books{
		states: newLayer[tables.StateKey, tables.Balance](
			func(k tables.StateKey) uint64 { return k.Account<<8 ^ uint64(k.Asset) },
		),
		accounts: newLayer[uint64, tables.Account](number),
		names:    newLayer[string, uint64](spreadName),
		refs:     newLayer[uint64, string](number),
		holds:    newLayer[uint64, tables.Hold](number),
		onces: newLayer[tables.OnceKey, tables.Once](
			func(k tables.OnceKey) uint64 { return uint64(k.Key[0]) | uint64(k.Key[1])<<8 },
		),
		marks: newLayer[tables.MarkKey, uint64](func(k tables.MarkKey) uint64 { return k.Account ^ k.N<<32 }),
		moved: newLayer[tables.MovedKey, engines.Amount](
			func(k tables.MovedKey) uint64 { return uint64(k.Token[0]) | uint64(k.Token[1])<<8 },
		),
		idem:    index,
		told:    told,
		named:   &atomic.Int64{},
		clean:   math.MaxInt64,
		soonest: soonest{running: never, missed: never},
	}
	b.budget.Store(math.MaxInt64)
	b.layers = [...]layerOf{b.states, b.accounts, b.names, b.refs, b.holds, b.onces, b.marks, b.moved}
	b.cur.assets = &assets{}
	b.keep = b.merge
	b.run.b = b
	b.show()
	return b
}

// spreadName returns FNV-1a of the last bytes of a name, where the names that a program makes
// differ.
func spreadName(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := max(0, len(s)-16); i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}

// Begin has nothing to do: there is no tentative layer until a command of the ledger comes.
func (b *books) Begin() {}

// Committed publishes the changes of the group: rows, then the tip, then keys.
func (b *books) Committed() {
	if !b.busy {
		return
	}
	b.undo()
	for _, l := range b.layers {
		l.publish()
	}
	b.show()
	b.idem.Committed()
	b.told.committed(b.events)
	b.close()
}

// Aborted drops the changes of the group.
func (b *books) Aborted() {
	if !b.busy {
		return
	}
	b.undo()
	for _, l := range b.layers {
		l.drop()
	}
	b.idem.Aborted()
	b.cur = *b.view.Load()
	b.close()
}

func (b *books) show() {
	t := b.cur
	b.view.Store(&t)
}

// close ends a group.
func (b *books) close() {
	b.evict()
	clear(b.events)
	b.events, b.busy = b.events[:0], false
	b.soonest.ended()
	b.arena.reset()
}

// undo reverts the running command, unless it was merged.
func (b *books) undo() {
	if !b.open {
		return
	}
	b.back(savepoint{})
	b.cur, b.open = b.before, false
}

// merge makes the running command's changes the group's.
func (b *books) merge() {
	for _, l := range b.layers {
		l.keep()
	}
	for _, e := range b.run.keys {
		b.idem.Insert(e.Key, e.Seq, b.run.at)
	}
	if b.event.Batch != 0 {
		b.events = append(b.events, b.event)
	}
	b.open = false
}

// layerOf is a layer of any rows.
type layerOf interface {
	publish()
	drop()
	keep()
	mark() int
	back(int)
	evict(most int64)
	bytes(rows int64) int64
	rows() (all, clean int64)
}

// savepoint is where the running command's changes stood; the zero savepoint is its beginning.
type savepoint [layerCount]int

func (b *books) save() (s savepoint) {
	for i, l := range b.layers {
		s[i] = l.mark()
	}
	return s
}

func (b *books) back(s savepoint) {
	for i, l := range b.layers {
		l.back(s[i])
	}
}

// digest16 is the first half of a digest.
func digest16(d b3.Digest) [16]byte { return [16]byte(d[:16]) }

// tip is the end of the ledger: the head, the assets, and the newest nodes of the log of batch
// roots. It is a value. The slices and maps that it points to are only appended to.
type tip struct {
	tables.Head
	horizon tables.Horizon
	assets  *assets
	log     logTail
	hand    hand
	// why the end of the journal is not known, after a boot that met damage; nil: it is
	headless error
	lack     error // why the rows do not follow the journal to its end, after a boot that met damage; nil: they do
}

// unread is why rows may be older than the journal, or an asset that is not among the assets be
// declared all the same: a boot that met damage did not come to all of them.
func (t *tip) unread() error {
	if t.lack == nil && t.Batches != 0 && len(t.assets.byRef) != int(t.Assets) {
		return fmt.Errorf("%w: %w: %d of %d assets are known", ErrSafeMode, store.ErrCorrupt, len(t.assets.byRef),
			t.Assets)
	}
	return t.lack
}

// logTail are the nodes of the log that are not flushed: those from the position base on.
type logTail struct {
	base  uint64
	nodes []b3.Digest
}

// node reads a node, from the file if it was flushed.
func (l *logTail) node(r store.Reader) merkle.ReadNode {
	return func(pos uint64) (b3.Digest, error) {
		if pos >= l.base && pos-l.base < uint64(len(l.nodes)) {
			return l.nodes[pos-l.base], nil
		}
		return tables.LogNodes(r)(pos)
	}
}

// add appends the nodes that a batch root brings as leaf number size.
func (l *logTail) add(r store.Reader, size uint64, root b3.Digest) error {
	nodes, err := merkle.LogNodes(size, root, l.node(r))
	if err != nil {
		return err
	}
	for i := range nodes {
		l.nodes = append(l.nodes, nodes[i].Hash)
	}
	return nil
}

// HeadOf is where the ledger of a file ends.
func HeadOf(r store.Reader) (record.Head, error) {
	head, _ := tables.GetHead(r)
	h := record.Head{Batches: head.Batches, LastRoot: head.LastRoot, Seq: head.Seq}
	low := tables.GetFlushed(r)
	tail := logTail{base: merkle.LogCount(low.Batches)}
	for no, b := range tables.Batches(r, low.Batches+1, head.Batches+1) {
		if err := tail.add(r, no-1, b.Root()); err != nil {
			return h, err
		}
	}
	var err error
	h.Root, err = merkle.LogRoot(head.Batches, tail.node(r))
	return h, err
}

// assets are the declared assets, immutable.
type assets struct {
	byName map[string]*asset
	byRef  []*asset // by ref - 1
}

// asset is one of them.
type asset struct {
	ref     uint32
	name    string
	account string // its issuance account
	issuer  uint64 // ref of that
	seq     uint64 // of the record that declared it
	scale   tables.Scale
}

func newAsset(ref uint32, name string, issuer, seq uint64) *asset {
	return &asset{ref: ref, name: name, account: engines.IssuanceAccount(name), issuer: issuer, seq: seq}
}

func (a *assets) of(ref uint32) *asset {
	if ref == 0 || int(ref) > len(a.byRef) {
		return nil
	}
	return a.byRef[ref-1]
}

// follows refuses a ref that is not the one behind the others: a row of one between them is
// missing.
func (a *assets) follows(ref uint32) error {
	if n := len(a.byRef); int(ref) != n+1 {
		return damage("it has asset %d behind asset %d", ref, n)
	}
	return nil
}

// scaled is a with the decimals of one of its assets.
func (a *assets) scaled(ref uint32, s tables.Scale) *assets {
	next := &assets{byName: maps.Clone(a.byName), byRef: slices.Clone(a.byRef)}
	one := *a.of(ref)
	one.scale = s
	next.byName[one.name], next.byRef[ref-1] = &one, &one
	return next
}

// with is a and one more.
func (a *assets) with(n *asset) *assets {
	next := &assets{
		byName: make(map[string]*asset, len(a.byName)+1),
		byRef:  append(a.byRef[:len(a.byRef):len(a.byRef)], n),
	}
	for _, each := range next.byRef {
		next.byName[each.name] = each
	}
	return next
}

// arena holds the bytes of a group's records until the group has ended: the store refers to them
// until then.
type arena struct {
	chunks [][]byte
	at     int // of the chunk in use
	used   int // of that chunk
}

const (
	arenaChunk = 1 << 20 // bytes
	arenaKeep  = 8       // chunks kept from one group to the next
)

// room returns an empty slice with room for n bytes, n at most arenaChunk. The caller adds the
// bytes that it uses to a.used.
func (a *arena) room(n int) []byte {
	if len(a.chunks) == 0 {
		a.chunks = append(a.chunks, make([]byte, arenaChunk))
	}
	if a.used+n > arenaChunk {
		a.at, a.used = a.at+1, 0
		if a.at == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, arenaChunk))
		}
	}
	return a.chunks[a.at][a.used : a.used : a.used+n]
}

// reset takes everything back.
func (a *arena) reset() {
	if len(a.chunks) > arenaKeep {
		clear(a.chunks[arenaKeep:])
		a.chunks = a.chunks[:arenaKeep]
	}
	a.at, a.used = 0, 0
}
