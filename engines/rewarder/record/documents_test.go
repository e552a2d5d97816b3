package record_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/rewarder/record"
)

const policyText = `{"asset":"ron","calculus":"ronbox-calculus/1","caps":{"actor_max_minor":"400000","excess":"redistribute","pool_max_minor":"2000000"},"floors":{"dust_minor":"10","guarantee_minor":"0"},"funding":{"account":"pool:protocol","mode":"transfer","source":"protocol_pool"},"id":"rev42","metrics":{"bytes_served":{"den":"4","num":"1","row_max":"0"}},"mode":"share","residual":{"account":"","mode":"retain"},"rounding":"largest_remainder","scale":"0","schema":"ronbox.rw.policy/1","shortfall":"quarantine","tenant":"default","version":"1.0.0"}`

// A policy in another spelling is the same policy.
func TestPolicySpellings(t *testing.T) {
	p, err := record.ParsePolicy([]byte(policyText))
	if err != nil || string(p.Bytes()) != policyText || p.Hash() != b3.Sum([]byte(policyText)) {
		t.Fatalf("%s, %v", p.Bytes(), err)
	}
	loose := strings.Replace(strings.ReplaceAll(policyText, ",", ", \n"), `"asset":"ron", `, "", 1)
	loose = strings.TrimSuffix(loose, "}") + `, "asset" : "ron" }`
	if q, err := record.ParsePolicy([]byte(loose)); err != nil || q.Hash() != p.Hash() {
		t.Errorf("%s: %v", loose, err)
	}
}

// An invalid member of a policy is refused by its name.
func TestPolicyRefusals(t *testing.T) {
	for _, tt := range []struct{ from, to, field string }{
		{`"asset":"ron",`, ``, "asset"},
		{`"asset":"ron"`, `"asset":"RON"`, "asset"},
		{`"asset":"ron"`, `"asset":"ron","asset":"ron"`, "asset"},
		{`"asset":"ron"`, `"asset":null`, "asset"},
		{`"asset":"ron"`, `"asset":"ron","colour":"red"`, "colour"},
		{`"400000"`, `400000`, "caps.actor_max_minor"},
		{`"400000"`, `"4e5"`, "caps.actor_max_minor"},
		{`"400000"`, `"400000.5"`, "caps.actor_max_minor"},
		{`"400000"`, `"-1"`, "caps.actor_max_minor"},
		{`"400000"`, `"0400000"`, "caps.actor_max_minor"},
		{`"400000"`, `"340282366920938463463374607431768211456"`, "caps.actor_max_minor"},
		{`"400000"`, `"9"`, "caps.actor_max_minor"},
		{`"redistribute"`, `"burn"`, "caps.excess"},
		{`"guarantee_minor":"0"`, `"guarantee_minor":"5"`, "floors.guarantee_minor"},
		{`"pool:protocol"`, `"sys:issue:ron"`, "funding.account"},
		{`"transfer"`, `"issue"`, "funding.mode"},
		{`"protocol_pool"`, `"somewhere"`, "funding.source"},
		{`"rev42"`, `"a/b"`, "id"},
		{`"den":"4"`, `"den":"0"`, "metrics.bytes_served.den"},
		{`"num":"1"`, `"num":"18446744073709551616"`, "metrics.bytes_served.num"},
		{`"num":"1"`, `"num":"1","odd":"1"`, "metrics.bytes_served.odd"},
		{`"bytes_served":{"den":"4","num":"1","row_max":"0"}`, ``, "metrics"},
		{`"bytes_served"`, `"views"`, "metrics"},
		{`"share"`, `"tariff"`, "mode"},
		{`"retain"`, `"sink"`, "residual.mode"},
		{`"largest_remainder"`, `"bankers"`, "rounding"},
		{`"scale":"0"`, `"scale":"19"`, "scale"},
		{`"quarantine"`, `"prorate"`, "shortfall"},
		{`ronbox-calculus/1`, `ronbox-calculus/2`, "calculus"},
		{`"tenant":"default"`, `"tenant":"_x"`, "tenant"},
		{`"version":"1.0.0"`, `"version":""`, "version"},
		{`{"asset"`, `[{"asset"`, "document"},
	} {
		text := strings.Replace(policyText, tt.from, tt.to, 1)
		_, err := record.ParsePolicy([]byte(text))
		var f *record.FieldError
		if text == policyText || !errors.As(err, &f) || f.Field != tt.field {
			t.Errorf("%s for %s: %v, want a fault of %s", tt.to, tt.from, err, tt.field)
		}
	}
}

func TestSignatures(t *testing.T) {
	var keys []*record.Key
	for i := range byte(3) {
		k, err := record.NewKey(bytes.NewReader(bytes.Repeat([]byte{i + 1}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := record.ParseKey(k.Bytes()); err != nil || again.Public() != k.Public() ||
			record.CheckKid(k.Public()) != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		keys = append(keys, k)
	}
	for _, bad := range []string{"", "ronbox-policy-key-1:00", strings.ToUpper(string(keys[0].Bytes())), string(keys[0].Bytes()) + "\n"} {
		if _, err := record.ParseKey([]byte(bad)); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
	policy, trusted := b3.Sum([]byte("policy")), []string{keys[0].Public(), keys[1].Public()}
	sign := func(n ...int) (out []record.Signature) {
		for _, i := range n {
			out = append(out, keys[i].Sign(policy))
		}
		return out
	}
	forged, short, alg := sign(0), sign(0), sign(0)
	forged[0].Sig = keys[0].Sign(b3.Sum(nil)).Sig
	short[0].Kid = short[0].Kid[2:]
	alg[0].Alg = "none"
	for _, tt := range []struct {
		name   string
		sigs   []record.Signature
		quorum int
		field  string
	}{
		{"one of one", sign(1), 1, ""}, {"two of two", sign(0, 1), 2, ""}, {"unsigned", nil, 1, "signatures"}, {"too few", sign(0), 2, "signatures"},
		{"foreign", sign(0, 2), 1, "signatures.kid"}, {"twice", sign(0, 0), 2, "signatures.kid"}, {"of another policy", forged, 1, "signatures.sig"},
		{"no key", short, 1, "signatures.kid"}, {"no algorithm", alg, 1, "signatures.alg"}, {"many", slices.Repeat(sign(0), 65), 1, "signatures"},
	} {
		err := record.CheckSignatures(policy, tt.sigs, trusted, tt.quorum)
		var f *record.FieldError
		if errors.As(err, &f) != (tt.field != "") || f != nil && f.Field != tt.field {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func rowsOf(after *record.Row) *record.Rows {
	return &record.Rows{Snapshot: &record.Snapshot{Metrics: []string{"bytes_served", "requests"}}, Payer: "pool",
		After: after}
}

const digestText = "b3:0000000000000000000000000000000000000000000000000000000000000001"

// Both forms of rows are equivalent. A fault names its line and member.
func TestRowForms(t *testing.T) {
	jsonRows, err := rowsOf(nil).Read([]byte(`{"actor":"a","metric":"requests","qty":"7"}
{"actor":"a","content":"`+digestText+`","metric":"bytes_served","qty":"0"}
{"metric":"requests","qty":"18446744073709551615","actor":"b"}
`), false)
	if err != nil {
		t.Fatal(err)
	}
	csvRows, err := rowsOf(
		nil,
	).Read([]byte("actor,metric,qty,content\r\na,requests,7,\na,bytes_served,0,"+digestText+"\nb,requests,18446744073709551615,"), true)
	if err != nil || !slices.Equal(jsonRows, csvRows) || len(jsonRows) != 3 {
		t.Errorf("%v, %v, %v", jsonRows, csvRows, err)
	}
	for _, tt := range []struct {
		csv         bool
		part, field string
	}{
		{false, `{"actor":"a","metric":"requests","qty":7}`, "line 1.qty"},
		{false, `{"actor":"a","metric":"requests","qty":"07"}`, "line 1.qty"},
		{false, `{"actor":"a","metric":"requests","qty":"-7"}`, "line 1.qty"},
		{false, `{"actor":"a","metric":"requests","qty":"18446744073709551616"}`, "line 1.qty"},
		{false, `{"actor":"a","metric":"requests"}`, "line 1.qty"},
		{false, `{"actor":"a","metric":"requests","qty":"7","x":"y"}`, "line 1.x"},
		{false, `{"actor":"a","actor":"a","metric":"requests","qty":"7"}`, "line 1.actor"},
		{false, `{"actor":"a b","metric":"requests","qty":"7"}`, "line 1.actor"},
		{false, `{"actor":"sys:issue:ron","metric":"requests","qty":"7"}`, "line 1.actor"},
		{false, `{"actor":"pool","metric":"requests","qty":"7"}`, "line 1.actor"},
		{false, `{"actor":"` + strings.Repeat("a", 161) + `","metric":"requests","qty":"7"}`, "line 1.actor"},
		{false, `{"actor":"a","metric":"views","qty":"7"}`, "line 1.metric"},
		{false, `{"actor":"a","content":"b3:00","metric":"requests","qty":"7"}`, "line 1.content"},
		{false, "{\"actor\":\"a\",\"metric\":\"requests\",\"qty\":\"7\"}\n{\"actor\":\"a\",\"metric\":\"requests\",\"qty\":\"7\"}", "line 2.actor"},
		{false, "{\"actor\":\"b\",\"metric\":\"requests\",\"qty\":\"7\"}\n{\"actor\":\"a\",\"metric\":\"requests\",\"qty\":\"7\"}", "line 2.actor"},
		{false, "\n", "line 1.document"},
		{true, "actor,qty,metric\na,7,requests", "line 1"},
		{true, "actor,metric,qty\na,requests,7,8", "line 2"},
		{true, "actor,metric,qty\na,requests,7\n\"a\",requests,8", "line 3.actor"},
		{true, "actor,metric,qty\na,requests, 7", "line 2.qty"},
	} {
		_, err := rowsOf(nil).Read([]byte(tt.part), tt.csv)
		var f *record.FieldError
		if !errors.As(err, &f) || f.Field != tt.field {
			t.Errorf("%s: %v, want a fault of %s", tt.part, err, tt.field)
		}
	}
	if _, err := rowsOf(
		&record.Row{Actor: "b"},
	).Read([]byte(`{"actor":"a","metric":"requests","qty":"7"}`), false); err == nil {
		t.Error("a part that begins before the end of the one before")
	}
}

// Rows and allocations round-trip, alone and after others.
func TestBinaryForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		actors := rapid.StringMatching(`[A-Za-z0-9:/_-]{1,160}`)
		var rows []record.Row
		var b, leaves []byte
		var all []record.Allocation
		for range rapid.IntRange(1, 5).Draw(t, "n") {
			r := record.Row{
				Actor:  actors.Draw(t, "actor"),
				Metric: rapid.Byte().Draw(t, "metric"),
				Qty:    rapid.Uint64().Draw(t, "qty"),
			}
			if rapid.Bool().Draw(t, "content") {
				r.Content = b3.Sum([]byte(r.Actor))
			}
			a := record.Allocation{r.Actor, engines.AmountOf(r.Qty, ^r.Qty), engines.AmountOf(^r.Qty, r.Qty)}
			rows, all, b = append(rows, r), append(all, a), r.Append(b)
			leaves = record.AppendAllocation(leaves, []byte(a.Actor), a.Amount, a.Score)
		}
		for i := range rows {
			raw, rest, ok := record.CutRow(b)
			a, bytes, tail := record.CutAllocation(leaves)
			if !ok || raw != rows[i] || bytes == nil || a != all[i] {
				t.Fatalf("row %d is %+v, %+v", i, raw, a)
			}
			b, leaves = rest, tail
		}
		if len(b)+len(leaves) > 0 {
			t.Fatal("bytes are left")
		}
	})
}

func FuzzRows(f *testing.F) {
	f.Add([]byte(`{"actor":"a","metric":"requests","qty":"7"}`), false)
	f.Add([]byte("actor,metric,qty,content\na,requests,7,"+digestText), true)
	f.Fuzz(func(t *testing.T, part []byte, csv bool) {
		rows, err := rowsOf(nil).Read(part, csv)
		if err != nil {
			if _, ok := errors.AsType[*record.FieldError](err); !ok {
				t.Fatalf("%v is no fault of a field", err)
			}
			return
		}
		var lines []byte
		for i, r := range rows {
			if i > 0 && rows[i-1].Compare(r) >= 0 {
				t.Fatalf("rows %d and %d do not ascend", i-1, i)
			}
			raw, _, _ := record.CutRow(r.Append(nil))
			lines = raw.AppendJSON(lines, []string{"bytes_served", "requests"})
		}
		if again, err := rowsOf(nil).Read(lines, false); err != nil || !slices.Equal(again, rows) {
			t.Fatalf("%s: %v", lines, err)
		}
	})
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte(policyText))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := record.ParsePolicy(b)
		if err != nil {
			if _, ok := errors.AsType[*record.FieldError](err); !ok {
				t.Fatalf("%v is no fault of a field", err)
			}
			return
		}
		if q, err := record.ParsePolicy(p.Bytes()); err != nil || !bytes.Equal(q.Bytes(), p.Bytes()) {
			t.Fatalf("%s: %v", p.Bytes(), err)
		}
	})
}

// Headers and refs have one spelling and round-trip.
func FuzzSpelling(f *testing.F) {
	s := record.Snapshot{
		Asset:   "ron",
		EpochID: "e",
		Tenant:  "default",
		Metrics: []string{"requests"},
		Pool:    engines.AmountOf(0, 5),
	}
	l := record.LedgerRef{Account: "pool", Asset: "ron", Available: engines.AmountOf(1, 5)}
	f.Add(s.Bytes())
	f.Add(l.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := record.ParseSnapshot(b); err == nil && !bytes.Equal(s.Bytes(), b) {
			t.Fatalf("%s is taken, %s written", b, s.Bytes())
		}
		if l, err := record.ParseLedgerRef(b); err == nil && !bytes.Equal(l.Bytes(), b) {
			t.Fatalf("%s is taken, %s written", b, l.Bytes())
		}
	})
}
