package ledger

import (
	"context"
	"math"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// resolver turns ops into actions in their caller's goroutine: names into refs, keys into hashes,
// ids of holds into seqs, and keys that are sealed into records. It opens a view only for what
// memory does not have.
type resolver struct {
	l       *Local
	ctx     context.Context
	key     *hashKey
	checked uint64
	assets  *assets
	seq     uint64 // a look at memory and file from now on finds every record up to it
	at      int64  // the command is stamped later than this, whatever the wall clock does
	now     int64  // as at, or the clock if that is later
	settled bool   // keys may be forgotten
	size    int

	word   string   // name of the asset at hand: a burst often has one
	asset  *asset   // nil: it is not declared
	misses []miss   // names that are not in memory
	absent []absent // parties without rows in memory
	holds  []*action
	refers []*reference // without a row in memory
	asked  []*action    // with a key that was found, or a reference that may be bound
}

// miss is a name to be looked up in the file.
type miss struct {
	name string
	ref  *uint64
}

// absent is a party without rows in memory; they are read from the file.
type absent struct {
	p     *party
	asset uint32
}

// opSize is about what an op's record weighs, key and images included, bytes.
const opSize = 420

func (l *Local) resolver(ctx context.Context) *resolver {
	checked, v := l.books.idem.Checked(), l.books.view.Load()
	return &resolver{
		l: l, ctx: ctx, key: l.keyed.Load(), checked: checked, assets: v.assets, seq: v.Seq, at: v.At,
		now: max(v.At, l.now().UnixNano()), settled: l.settled(),
	}
}

// keyForever is the lifetime of keys while none may be forgotten, ns: longer than any ledger, and
// subtracting it from a stamp does not overflow.
const keyForever = math.MaxInt64 / 2

// keyTTL returns how long the key of op counts, ns.
func keyTTL(op *Op, settled bool) int64 {
	if !settled {
		return keyForever
	}
	return int64(op.TTL)
}

// resolve makes a command's actions of ops.
func (s *resolver) resolve(ops []Op) ([]action, error) {
	actions, err := s.each(ops, nil)
	if err == nil {
		err = s.readAll()
	}
	return actions, err
}

// readAll reads from the file what memory does not have.
func (s *resolver) readAll() (err error) {
	if len(s.misses)+len(s.holds)+len(s.refers)+len(s.asked) > 0 {
		err = s.l.view(s.ctx, s.read)
	}
	if err == nil && len(s.absent) > 0 {
		err = s.readRows()
	}
	return err
}

// each resolves ops; of a batch, if that is not nil.
func (s *resolver) each(ops []Op, batch *Op) ([]action, error) {
	actions := make([]action, len(ops))
	for i := range ops {
		if err := s.one(&actions[i], &ops[i], batch); err != nil {
			return nil, err
		}
	}
	return actions, nil
}

func (s *resolver) one(a *action, o, batch *Op) (err error) {
	a.op = o
	s.size += opSize
	asker := o
	if batch != nil {
		asker = batch // its own record says who asked
	} else {
		a.principal, a.capID = hash8(o.Principal), hash8(o.CapID)
	}
	if o.Dedupe.Key != "" { // sealed runs are searched here, and Apply skips them
		a.key, a.keyed, a.checked = s.key.hash(o.Dedupe), true, s.checked
		a.ttl = keyTTL(o, s.settled)
		if a.found, _, err = s.l.books.idem.Find(a.key, s.at-a.ttl, s.view); err != nil {
			return err
		}
	}
	if o.Reference != "" {
		s.refer(a, asker.Principal)
	}
	if batch == nil && (a.found != 0 || a.reference != nil && !a.reference.free) {
		s.asked = append(s.asked, a)
	}
	switch o.Code {
	case record.OpBatch:
		a.inner, err = s.each(o.Ops, o)
		return err
	case record.OpCapture, record.OpRelease:
		s.holds = append(s.holds, a)
		return nil
	case record.OpFlags:
		s.name(o.From, &a.from.ref)
		return nil
	case record.OpAsset, record.OpScale:
		return nil
	}
	if o.Asset != s.word {
		s.word, s.asset = o.Asset, s.assets.byName[o.Asset]
	}
	a.asset = s.asset
	s.side(&a.from, o.From, o.Asset)
	s.side(&a.to, o.To, o.Asset)
	return nil
}

// side resolves a party; "" is the issuance account. Rows that are in memory are found here, so
// that the committer need not search them.
func (s *resolver) side(p *party, name, asset string) {
	switch {
	case name != "":
		s.name(name, &p.ref)
	case s.asset != nil:
		p.ref = s.asset.issuer
	}
	if s.asset == nil {
		return
	}
	if p.ref == 0 || !s.held(p, s.asset.ref) {
		s.absent = append(s.absent, absent{p, s.asset.ref})
	}
}

// held finds the rows of a party in memory, and reports whether both are there.
func (s *resolver) held(p *party, asset uint32) bool {
	p.account = s.l.books.accounts.cell(p.ref)
	p.state = s.l.books.states.cell(tables.StateKey{Account: p.ref, Asset: asset})
	return p.account != nil && p.state != nil
}

func (s *resolver) name(name string, ref *uint64) {
	if *ref = s.l.refInMemory(name); *ref == 0 {
		s.misses = append(s.misses, miss{name, ref})
	}
}

// hash8 stands for a word in the journal, which is handed out: the word itself is not. "" is zero.
func hash8(word string) (h [8]byte) {
	if word == "" {
		return h
	}
	d := b3.Sum([]byte(word))
	copy(h[:], d[:])
	return h
}

func (s *resolver) view(fn func(store.Reader) error) error { return s.l.store.View(s.ctx, fn) }

// hash is the key under which the index knows k.
func (h *hashKey) hash(k DedupeKey) idem.Key {
	buf := make([]byte, 0, 160)
	buf = append(append(append(buf, k.Scope...), 0), k.Key...)
	sum := h.mode.Sum(buf)
	return idem.Key(sum[:16])
}

// read looks into the file for what memory did not have.
func (s *resolver) read(r store.Reader) error {
	s.readNames(r)
	s.readReferences(r)
	for _, a := range s.asked {
		if err := s.answer(r, a); err != nil {
			return err
		}
	}
	past := s.l.past(r)
	for _, a := range s.holds {
		seq := a.op.Hold.Seq()
		rec, known := past.hold(seq)
		if known && rec.Op == record.OpHold && rec.TxID() == a.op.Hold || !known && past.Below(seq) {
			a.hold = seq
		}
	}
	return nil
}

// answer sets a.known if the key or the reference of a decides its outcome. It leaves a key that
// may have expired to the command: the stamp of the command decides.
func (s *resolver) answer(r store.Reader, a *action) error {
	past := s.l.past(r)
	if past.Below(a.found) {
		a.found = 0 // a key that counts leads to a later record
	}
	if a.found == 0 && a.reference == nil {
		return nil
	}
	seq, reject := a.found, (*Reject)(nil)
	if seq != 0 {
		rec, known := tables.Record(r, seq)
		mustLead(a.key, seq, &rec, known)
		if rec.At <= s.now-a.ttl {
			return nil
		}
		if rec.Dedupe.Fingerprint != a.op.Fingerprint {
			reject = refuse(record.IdemConflict)
		}
	} else {
		row := &a.reference.row
		closed, err := past.bound(row)
		seq = row.Seq
		switch {
		case err != nil:
			return err
		case closed != nil:
			reject = periodClosed(closed)
		case seq == 0 || seq > s.seq:
			return nil
		case digest16(row.Digest) != a.reference.guard.Owner:
			reject = refuse(record.ReferenceConflict)
		}
	}
	if reject != nil {
		a.known = &Outcome{Reject: reject, Batch: a.op.Code == record.OpBatch, Atomic: a.op.Atomic}
		s.l.m.refused(reject.Code)
		return nil
	}
	out, err := s.l.outcomeAt(r, seq)
	out.replay()
	a.known = &out
	return err
}

func (s *resolver) readNames(r store.Reader) {
	if s.l.books.wide(len(s.misses)) {
		names := make([]string, len(s.misses))
		for i := range s.misses {
			names[i] = s.misses[i].name
		}
		tables.WarmNames(r, names)
	}
	for _, m := range s.misses {
		if *m.ref, _ = tables.Ref(r, m.name); *m.ref != 0 {
			s.l.names.add(m.name, *m.ref)
		}
	}
}

// rows are an account and a balance that memory did not have. Callers read them from the file in
// their own goroutines, so that the committer does not wait for the disk. Captures, releases and
// changes of flags have none: they are few, and the committer reads for them. accountAt and
// balanceAt are the seqs as of which the rows were read; 0 means that memory had the row.
type rows struct {
	account   tables.Account
	accountAt uint64
	balance   tables.Balance
	balanceAt uint64
}

// readRows reads those of the parties that memory still lacks. The view begins after memory was
// asked, so it is no older.
func (s *resolver) readRows() error {
	cold := s.absent[:0]
	for _, a := range s.absent {
		if a.p.ref != 0 && !s.held(a.p, a.asset) { // an unknown account has no rows
			cold = append(cold, a)
		}
	}
	if len(cold) == 0 {
		return nil
	}
	return s.l.store.View(s.ctx, func(r store.Reader) error {
		if s.l.books.wide(len(cold)) {
			keys := make([]tables.StateKey, len(cold))
			for i, a := range cold {
				keys[i].Account = a.p.ref
			}
			tables.WarmStates(r, keys)
		}
		read := make([]rows, len(cold))
		for i, a := range cold {
			a.p.rows = &read[i]
			if a.p.account == nil {
				read[i].account = s.l.books.fileAccount(r, a.p.ref)
				read[i].accountAt = s.seq
			}
			if a.p.state == nil {
				read[i].balance = s.l.books.fileBalance(r, tables.StateKey{Account: a.p.ref, Asset: a.asset})
				read[i].balanceAt = s.seq
			}
		}
		return nil
	})
}

// fewRows is a number of accounts whose rows lie in few pages.
const fewRows = 65_536

// wideRows is from how many rows on it is worth to ask the disk for all their pages first.
const wideRows = 8

// wide reports whether n rows may lie in so many pages that reading all pages ahead pays.
func (b *books) wide(n int) bool { return n >= wideRows && b.view.Load().Accounts > fewRows }
