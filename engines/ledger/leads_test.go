package ledger

import (
	"errors"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// If the index leads a key to a wrong record or to none, the key is neither answered with that
// record nor treated as new.
func TestKeyThatLeadsElsewhere(t *testing.T) {
	for name, to := range map[string]func(last uint64) uint64{
		"another key's record":       func(last uint64) uint64 { return last },
		"a record without a key":     func(uint64) uint64 { return 1 },
		"a record that is not there": func(last uint64) uint64 { return last + 100 },
	} {
		s := newStage(t)
		s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
		first, second := issueOf(1), issueOf(2)
		first.ops[0].Dedupe.Key, second.ops[0].Dedupe.Key = "first", "second"
		first.ops[0].TTL, second.ops[0].TTL = 1<<60, 1<<60
		s.do(t, first)
		s.do(t, second)
		s.end()
		if out := s.do(t, first); out.results[0].code != record.Replayed {
			t.Fatalf("again: %+v", out.results[0])
		}
		s.end()
		s.b.idem.Insert(first.command().ops[0].key, to(s.b.cur.Seq), s.b.cur.At)
		s.b.idem.Committed()
		out, err := storetest.Do(s.tx, store.Command[*posted](first.command()))
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}
