package ledger

import (
	"context"
	"encoding/binary"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// resolver turns ops into actions in their caller's goroutine: names into refs, keys into hashes, ids of holds into seqs, and keys that are
// sealed into records. It opens a view only for what memory does not have.
type resolver struct {
	l       *Local
	ctx     context.Context
	key     *hashKey
	checked uint64
	assets  *assets
	seq     uint64 // every record up to it is in memory or in the file for whoever looks now
	at      int64  // the command is stamped later than this, whatever the wall clock does
	size    int
	touched []Mark

	word    string    // name of the asset at hand: a burst often has one
	asset   *asset    // nil: it is not declared
	who     DedupeKey // whose hashes are at hand: a burst often has one principal
	whoHash [2][8]byte
	misses  []miss   // names that are not in memory
	absent  []absent // whose rows are not in memory
	holds   []*action
}

// miss is a name to be looked up in the file.
type miss struct {
	name string
	ref  *uint64
}

// absent is a party whose rows are to be read from the file.
type absent struct {
	p     *party
	asset uint32
}

// opSize is about what an op's record weighs, key and images included, bytes.
const opSize = 420

func (l *Local) resolver(ctx context.Context) *resolver {
	checked, v := l.books.idem.Checked(), l.books.view.Load()
	return &resolver{l: l, ctx: ctx, key: l.keyed.Load(), checked: checked, assets: v.assets, seq: v.Seq, at: v.At}
}

// resolve makes a command's actions of ops.
func (s *resolver) resolve(ops []Op) ([]action, error) {
	n := len(ops)
	for i := range ops {
		n += len(ops[i].Ops)
	}
	s.touched = make([]Mark, 0, 2*n)
	actions, err := s.each(ops)
	if err == nil && len(s.misses)+len(s.holds) > 0 {
		n := len(s.touched)
		err = s.l.view(s.ctx, func(r store.Reader) error {
			s.touched = s.touched[:n]
			return s.read(r)
		})
	}
	if err == nil && len(s.absent) > 0 {
		err = s.readRows()
	}
	return actions, err
}

func (s *resolver) each(ops []Op) ([]action, error) {
	actions := make([]action, len(ops))
	for i := range ops {
		if err := s.one(&actions[i], &ops[i]); err != nil {
			return nil, err
		}
	}
	return actions, nil
}

func (s *resolver) one(a *action, o *Op) (err error) {
	a.op = o
	s.size += opSize
	s.hashWho(a)
	if o.Dedupe.Key != "" {
		if err = s.find(a); err != nil {
			return err
		}
	}
	switch o.Code {
	case record.OpBatch:
		a.inner, err = s.each(o.Ops)
		return err
	case record.OpCapture, record.OpRelease:
		s.holds = append(s.holds, a)
		return nil
	case record.OpFlags:
		s.name(o.From, &a.from.ref)
		return nil
	case record.OpAsset:
		return nil
	}
	if o.Asset != s.word {
		s.word, s.asset = o.Asset, s.assets.get(o.Asset)
	}
	if s.asset != nil {
		a.asset = s.asset.ref
	}
	s.side(&a.from, o.From, o.Asset)
	s.side(&a.to, o.To, o.Asset)
	return nil
}

// side resolves a party; "" is the issuance account. Rows that are in memory are found here, so that the committer need not search them.
func (s *resolver) side(p *party, name, asset string) {
	switch {
	case name != "":
		s.name(name, &p.ref)
	case s.asset != nil:
		name, p.ref = s.asset.account, s.asset.issuer
	default:
		name = engines.IssuanceAccount(asset)
	}
	s.touched = append(s.touched, MarkOf(name, asset))
	if s.asset == nil {
		return
	}
	if p.ref == 0 || !s.held(p, s.asset.ref) {
		s.absent = append(s.absent, absent{p, s.asset.ref})
	}
}

// held finds the rows of a party in memory, and tells whether they are there.
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

// hashWho hashes who asked and by which token.
func (s *resolver) hashWho(a *action) {
	o := a.op
	if who := (DedupeKey{o.Principal, o.CapID}); who != s.who {
		s.who, s.whoHash = who, [2][8]byte{s.l.wordHash(o.Principal), s.l.wordHash(o.CapID)}
	}
	a.principal, a.capID = s.whoHash[0], s.whoHash[1]
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

// wordHash is hash8, remembered: principals and tokens come often.
func (l *Local) wordHash(word string) (h [8]byte) {
	if word == "" {
		return h
	}
	n := l.words.get(word)
	if n == 0 {
		h = hash8(word)
		l.words.add(word, binary.LittleEndian.Uint64(h[:]))
		return h
	}
	binary.LittleEndian.PutUint64(h[:], n)
	return h
}

// find hashes the key, and looks for it in what is sealed, so that Apply need not.
func (s *resolver) find(a *action) (err error) {
	a.key, a.keyed, a.checked = s.key.hash(a.op.Dedupe), true, s.checked
	a.found, _, err = s.l.books.idem.Find(a.key, s.at-int64(a.op.TTL), s.view)
	return err
}

func (s *resolver) view(fn func(store.Reader) error) error { return s.l.store.View(s.ctx, fn) }

// hash is the key under which the index knows k.
func (h *hashKey) hash(k DedupeKey) idem.Key {
	buf := make([]byte, 0, 160)
	buf = append(append(append(buf, k.Scope...), 0), k.Key...)
	return idem.Key(digest16(h.mode.Sum(buf)))
}

// read looks into the file for what memory did not have.
func (s *resolver) read(r store.Reader) error {
	s.readNames(r)
	var rec record.Record
	for _, a := range s.holds {
		if seq := a.op.Hold.Seq(); tables.ReadRecord(r, seq, &rec) && rec.Op == record.OpHold && rec.TxID() == a.op.Hold {
			a.hold = seq
			if err := s.parties(r, &rec); err != nil {
				return err
			}
		}
	}
	return nil
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
			s.l.refs.add(m.name, *m.ref)
		}
	}
}

// parties notes whom the end of a hold will touch.
func (s *resolver) parties(r store.Reader, hold *record.Record) error {
	asset := s.assets.of(hold.Asset)
	for _, ref := range []uint64{hold.From, hold.To} {
		name, err := s.l.nameOf(r, ref)
		if err != nil {
			return err
		}
		if asset != nil {
			s.touched = append(s.touched, MarkOf(name, asset.name))
		}
	}
	return nil
}
