package record

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

const testOrigin = "ronbox.test/log"

// began is the base that a genesis with items leaves.
func began(t testing.TB, set *SignerSet, items ...Item) (*Payload, Base) {
	t.Helper()
	p, all, err := Complete(Draft{Version: 1, Full: true, Put: items, SignerSet: set}.Bytes(), Base{Origin: testOrigin},
		noon)
	if err != nil {
		t.Fatal(err)
	}
	return p, Base{Origin: testOrigin, Version: 1, PayloadB3: p.B3(), Items: all, Signers: p.SignerSet}
}

func TestCompleteGenesis(t *testing.T) {
	set := testSet(t, 1, 2)
	p, base := began(t, set, testItem(t, "a", 1))
	want := fmt.Sprintf(
		`{"created_at":"2026-03-01T12:00:00.000Z","items":[{"id":"a","kind":"node","meta":{"generation":1}}],"items_count":1,"items_root":%q,`+
			`"kind":"genesis","mode":"full","origin":"ronbox.test/log","prev_hash":%q,"schema_version":"1.0.0","signer_set":%s,"signer_set_b3":%q,`+
			`"type":"ron.registry/set/v1","version":1}`,
		base.Items.Root(),
		b3.Digest{},
		set.Bytes(),
		set.B3(),
	)
	if string(p.Bytes()) != want || p.B3() != b3.Sum([]byte(want)) {
		t.Errorf("%s\nwant %s", p.Bytes(), want)
	}
	if items, err := p.Check(Base{Origin: testOrigin}); err != nil || items.Root() != base.Items.Root() {
		t.Errorf("check: %v", err)
	}
}

// A draft may leave members out; those that it has must be right.
func TestComplete(t *testing.T) {
	_, base := began(t, testSet(t, 1, 2), testItem(t, "a", 1), testItem(t, "b", 1))
	const head = `"schema_version":"1.0.0","version":2`
	const put = `"put":[{"id":"c","kind":"node","meta":{}}]`
	for _, draft := range []string{
		`{` + head + `,` + put + `}`,
		`{` + head + `,` + put + `,"remove":["a"]}`,
		`{` + head + `,"remove":[]}`,
		`{` + head + `,"items":[]}`,
		`{` + head + `,"items":[{"id":"c","kind":"node","meta":{}},{"id":"a","kind":"node","meta":{}}]}`,
		`{` + head + `,` + put + `,"items_count":3,"origin":"ronbox.test/log","kind":"update","mode":"delta","signer_set_b3":"` + base.Signers.B3().String() + `"}`,
		`{` + head + `,` + put + `,"prev_hash":"` + base.PayloadB3.String() + `","created_at":"2026-01-01T00:00:00Z","expiry":"2027-01-01T00:00:00Z"}`,
	} {
		p, items, err := Complete([]byte(draft), base, noon)
		if err != nil {
			t.Errorf("%s: %v", draft, err)
			continue
		}
		again, err := ParsePayload(p.Bytes())
		if err != nil || again.B3() != p.B3() || !bytes.Equal(again.encode(), p.Bytes()) {
			t.Fatalf("%s: %v", p.Bytes(), err)
		}
		if same, err := again.Check(base); err != nil || same.Root() != items.Root() {
			t.Errorf("%s does not pass its own check: %v", p.Bytes(), err)
		}
	}
}

func TestCompleteRefuses(t *testing.T) {
	_, base := began(t, testSet(t, 1, 2), testItem(t, "a", 1), testItem(t, "b", 1))
	const head = `"schema_version":"1.0.0","version":2`
	const put = `"put":[{"id":"c","kind":"node","meta":{}}]`
	zero := b3.Digest{}.String()
	for _, tt := range []struct {
		draft string
		field string // "" for an error that is not of one
		is    error
	}{
		{`[]`, "", ErrMalformed},
		{`{` + head + `}`, "put", nil},
		{`{` + head + `,"put":{}}`, "put", nil},
		{`{` + head + `,"put":[1]}`, "put.0", nil},
		{`{` + head + `,"put":[{"id":"c","kind":"node"}]}`, "put.0.meta", nil},
		{`{` + head + `,"remove":["c"]}`, "remove", nil},
		{`{` + head + `,"remove":["C"]}`, "remove.0", nil},
		{`{` + head + `,"remove":[{}]}`, "remove.0", nil},
		{`{` + head + `,"items":[],"put":[]}`, "put", nil},
		{`{` + head + `,"items":[],"mode":"delta"}`, "put", nil},
		{`{` + head + `,"items":[{"id":"c","kind":"node","meta":{}},{"id":"c","kind":"node","meta":{}}]}`, "put", nil},
		{`{` + head + `,` + put + `,"items_count":2}`, "items_count", nil},
		{`{` + head + `,` + put + `,"items_count":65537}`, "items_count", nil},
		{`{` + head + `,` + put + `,"items_root":"` + base.Items.Root() + `"}`, "items_root", nil},
		{`{` + head + `,` + put + `,"items_root":"sha256:00"}`, "items_root", nil},
		{`{` + head + `,` + put + `,"signer_set_b3":"` + zero + `"}`, "signer_set_b3", nil},
		{`{` + head + `,` + put + `,"origin":"elsewhere"}`, "origin", nil},
		{`{` + head + `,` + put + `,"origin":"https://a"}`, "origin", nil},
		{`{` + head + `,` + put + `,"type":"x"}`, "type", nil},
		{`{` + head + `,` + put + `,"mode":"x"}`, "mode", nil},
		{`{` + head + `,` + put + `,"kind":"x"}`, "kind", nil},
		{`{` + head + `,` + put + `,"kind":"genesis"}`, "kind", nil},
		{`{` + head + `,` + put + `,"kind":"signers"}`, "signer_set", nil},
		{`{` + head + `,` + put + `,"kind":"supersede"}`, "supersede", nil},
		{`{` + head + `,` + put + `,"signer_set":` + string(base.Signers.Bytes()) + `}`, "mode", nil},
		{`{` + head + `,` + put + `,"kind":"update","signer_set":` + string(base.Signers.Bytes()) + `}`, "signer_set", nil},
		{`{` + head + `,"items":[],"signer_set":` + string(base.Signers.Bytes()) + `}`, "mode", nil},
		{`{` + head + `,"signer_set":` + string(base.Signers.Bytes()) + `}`, "signer_set.epoch", nil},
		{`{` + head + `,` + put + `,"supersede":{}}`, "supersede.of", nil},
		{`{` + head + `,` + put + `,"kind":"update",` + supersede("DataError", "", "wrong region") + `}`, "supersede", nil},
		{`{` + head + `,` + put + `,` + supersede("dataerror", "", "wrong region") + `}`, "supersede.reason", nil},
		{`{` + head + `,` + put + `,` + supersede("Other", "", "wrong region") + `}`, "supersede.other", nil},
		{`{` + head + `,` + put + `,` + supersede("DataError", "a whim", "wrong region") + `}`, "supersede.other", nil},
		{`{` + head + `,` + put + `,` + supersede("Other", strings.Repeat("x", 1025), "wrong region") + `}`, "supersede.other", nil},
		{`{` + head + `,` + put + `,` + supersede("DataError", "", "") + `}`, "supersede.note", nil},
		{`{` + head + `,` + put + `,` + supersede("DataError", "", strings.Repeat("x", 1025)) + `}`, "supersede.note", nil},
		{`{` + head + `,` + put + `,` + supersede("Other", "a whim", "not on HEAD") + `}`, "", ErrChainMismatch},
		{`{` + head + `,` + put + `,"signer_set":{}}`, "signer_set.type", nil},
		{`{` + head + `,` + put + `,"created_at":"yesterday"}`, "created_at", nil},
		{`{` + head + `,` + put + `,"expiry":""}`, "expiry", nil},
		{`{` + head + `,` + put + `,"rationale_b3":"` + zero + `"}`, "rationale_b3", nil},
		{`{` + head + `,` + put + `,"unknown":1}`, "unknown", nil},
		{`{` + head + `,` + put + `,"Version":2}`, "Version", nil},
		{`{"version":2,` + put + `}`, "schema_version", nil},
		{`{"schema_version":"2.0.0","version":2,` + put + `}`, "schema_version", nil},
		{`{"schema_version":"1.0.0",` + put + `}`, "version", nil},
		{`{"schema_version":"1.0.0","version":2.0,` + put + `}`, "version", nil},
		{`{"schema_version":"1.0.0","version":"2",` + put + `}`, "version", nil},
		{`{"schema_version":"1.0.0","version":0,` + put + `}`, "version", nil},
		{`{"schema_version":"1.0.0","version":3,` + put + `}`, "", ErrVersionSkew},
		{`{"schema_version":"1.0.0","version":1,` + put + `}`, "", ErrVersionSkew},
		{`{` + head + `,` + put + `,"prev_hash":"` + zero + `"}`, "", ErrChainMismatch},
		{`{` + head + `,` + put + `,"prev_hash":"b3:00"}`, "prev_hash", nil},
		{`{` + manyMembers(30) + `}`, "schema_version", nil},
	} {
		_, _, err := Complete([]byte(tt.draft), base, noon)
		if tt.field != "" {
			wantField(t, tt.draft, err, tt.field)
		} else if !errors.Is(err, tt.is) {
			t.Errorf("%s: %v, want %v", tt.draft, err, tt.is)
		}
	}
}

// supersede is the member of a draft that replaces a version which is not HEAD.
func supersede(reason, other, note string) string {
	if other != "" {
		other = `"other":"` + other + `",`
	}
	return fmt.Sprintf(`"supersede":{"of":%q,"reason":%q,%s"note":%q}`, b3.Sum(nil), reason, other, note)
}

func manyMembers(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"m%02d":1`, i))
	}
	return strings.Join(all, ",")
}

func TestCheckGenesis(t *testing.T) {
	set := testSet(t, 1, 2)
	p, _ := began(t, set)
	text := string(p.Bytes())
	for _, tt := range []struct {
		old, to, field string
	}{
		{`"kind":"genesis"`, `"kind":"update"`, "kind"},
		{`"items":[]`, `"put":[],"remove":[]`, "items"},
		{`"items":[],"items_count":0`, `"put":[],"remove":[],"items_count":0`, "items"},
		{`,"signer_set":` + string(set.Bytes()), ``, "signer_set"},
		{`"epoch":1`, `"epoch":2`, "signer_set.epoch"},
		{`"threshold":1`, `"threshold":0`, "signer_set.threshold"},
		{set.B3().String(), b3.Sum(nil).String(), "signer_set_b3"},
		{testOrigin, "another.test", "origin"},
	} {
		q, err := ParsePayload([]byte(strings.Replace(text, tt.old, tt.to, 1)))
		if err == nil {
			_, err = q.Check(Base{Origin: testOrigin})
		}
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
	if _, err := p.Check(Base{}); err != nil {
		t.Errorf("any origin: %v", err)
	}
	delta := strings.Replace(strings.Replace(text, `"items":[]`, `"put":[],"remove":[]`, 1), `"mode":"full"`,
		`"mode":"delta"`, 1)
	q, err := ParsePayload([]byte(delta))
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Check(Base{})
	wantField(t, "a genesis that is a delta", err, "mode")
}

func TestPayloadLimits(t *testing.T) {
	_, base := began(t, testSet(t, 1, 1))
	draft := func(n int) []byte {
		var items []Item
		for i := range n {
			it, err := ParseItem(
				fmt.Appendf(nil, `{"id":"i%05d","kind":"node","meta":{"x":%q}}`, i, strings.Repeat("x", 32000)),
			)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, it)
		}
		return Draft{Version: 2, Put: items}.Bytes()
	}
	if _, _, err := Complete(draft(32), base, noon); err != nil {
		t.Errorf("just below the limit: %v", err)
	}
	for _, n := range []int{33, 140} {
		if _, _, err := Complete(draft(n), base, noon); !errors.Is(err, ErrHardLimit) {
			t.Errorf("%d large items: %v", n, err)
		}
		if _, err := ParsePayload(draft(n)); !errors.Is(err, ErrHardLimit) {
			t.Errorf("%d large items: %v", n, err)
		}
	}
	if _, err := ReadDraft(draft(140)); !errors.Is(err, ErrHardLimit) {
		t.Errorf("read: %v", err)
	}
}

func TestReadDraft(t *testing.T) {
	want := b3.Sum(nil)
	for _, tt := range []struct {
		draft, field string
		prev         *b3.Digest
	}{
		{`{"version":7,"x":1}`, "", nil},
		{`{"kind":1,"version":7}`, "", nil},
		{`{"prev_hash":"` + want.String() + `","version":7}`, "", &want},
		{`{"prev_hash":1,"version":7}`, "prev_hash", nil},
		{`[]`, "", nil},
	} {
		got, err := ReadDraft([]byte(tt.draft))
		switch {
		case tt.field != "" || tt.draft == `[]`:
			wantField(t, tt.draft, err, tt.field)
		case err != nil || got.Version != 7 || !reflect.DeepEqual(got.PrevHash, tt.prev):
			t.Errorf("%s: %+v, %v", tt.draft, got, err)
		}
	}
}

// The delta between two random sets completes to a valid payload. With its members in any order the
// payload parses to the same value and produces the second set.
func TestPayloadRoundTrip(t *testing.T) {
	set := testSet(t, 1, 1)
	rapid.Check(t, func(t *rapid.T) {
		from, to := itemsOf(t, genSet.Draw(t, "from")), itemsOf(t, genSet.Draw(t, "to"))
		base := Base{Origin: testOrigin, Version: 5, PayloadB3: b3.Sum([]byte("5")), Items: from, Signers: set}
		d := Draft{Version: 6, Expiry: "2027-01-01T00:00:00Z"}
		if d.Full = rapid.Bool().Draw(t, "full"); d.Full {
			for it := range to.All() {
				d.Put = append(d.Put, it)
			}
		} else {
			d.Put, d.Remove = Diff(from, to)
		}
		p, items, err := Complete(d.Bytes(), base, noon)
		if err != nil || items.Root() != to.Root() || p.ItemsRoot != to.Root() || p.ItemsCount != to.Len() {
			t.Fatalf("%s: %v", d.Bytes(), err)
		}
		q, err := ParsePayload(append([]byte(" "), p.Bytes()...))
		if err != nil || !bytes.Equal(q.Bytes(), p.Bytes()) || q.B3() != p.B3() {
			t.Fatalf("%s: %v", p.Bytes(), err)
		}
		if items, err := q.Check(base); err != nil || items.Root() != to.Root() {
			t.Fatalf("%s: %v", p.Bytes(), err)
		}
	})
}

// No member of a draft is dropped silently from the signed payload.
func TestDraftWithItemsBesideADelta(t *testing.T) {
	_, base := began(t, testSet(t, 1, 2), testItem(t, "a", 1))
	for _, extra := range []string{`"mode":"delta","put":[],"remove":["a"],"items":[]`, `"mode":"full","items":[],"put":[]`} {
		draft := `{"schema_version":"1.0.0","version":2,` + extra + `}`
		if p, _, err := Complete([]byte(draft), base, noon); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s became %+v, %v", draft, p, err)
		}
	}
}
