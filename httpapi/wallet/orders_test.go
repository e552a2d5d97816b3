package wallet

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi"
	walletapi "ronbox/httpapi/wire/wallet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	someULID     = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	txid         = "tx_" + someULID
	someTransfer = `{"from":"alice","to":"bob","asset":"ron","amount_minor":"5","nonce":1,"memo":"lunch","valid_until":"2100-01-01T02:00:00+02:00"}`
)

// batchOf returns a batch of n transfers.
func batchOf(mode string, n int) string {
	one := `{"op":"transfer",` + someTransfer[1:]
	return `{"mode":"` + mode + `","ops":[` + strings.Repeat(one+",", n-1) + one + `]}`
}

// toCBOR converts JSON to CBOR.
func toCBOR(t testing.TB, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	raw, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := raw.Marshal(whole(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// whole converts the floats of decoded JSON to integers.
func whole(v any) any {
	switch v := v.(type) {
	case float64:
		if v >= 1<<63 {
			return uint64(1<<64 - 1) // the only value above 1<<63 in these tests
		}
		return uint64(v)
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	}
	return v
}

// drawOrder draws an operation of a batch, usually a valid one.
func drawOrder(t *rapid.T) map[string]any {
	op := rapid.SampledFrom([]string{"issue", "transfer", "burn", "hold", "capture", "release", "flags"}).Draw(t, "op")
	must, may := ledger.Takes(opOf(op))
	out := map[string]any{"op": op}
	for i, name := range ledger.MemberNames() {
		m := ledger.Members(1 << i)
		if must&m == 0 && (may&m == 0 || rapid.Bool().Draw(t, name+" left out")) {
			continue
		}
		switch m {
		case ledger.MemberNonce, ledger.MemberExpires:
			out[name] = rapid.Uint64Range(0, 1<<53).
				Draw(t, name) %
				rapid.SampledFrom([]uint64{1, 100, 1 << 53}).
					Draw(t, "of")
		case ledger.MemberHold:
			out[name] = rapid.SampledFrom([]string{txid, "tx_x"}).Draw(t, name)
		case ledger.MemberAmount:
			out[name] = rapid.StringMatching(`[0-9]{1,3}|[1-9][0-9]{20,38}`).Draw(t, name)
		case ledger.MemberValidUntil:
			out[name] = "2100-01-01T00:00:00Z"
		default:
			out[name] = rapid.StringMatching(`[a-z]{1,3}`).Draw(t, name)
		}
	}
	return out
}

// The decoder reads exactly the members of an operation that the document lists.
func TestOrdersHaveTheMembersOfABatch(t *testing.T) {
	var read, told []string
	for f := range reflect.TypeFor[order]().Fields() {
		read = append(read, f.Tag.Get("json"))
	}
	for f := range reflect.TypeFor[walletapi.BatchOp]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		told = append(told, name)
	}
	var named []string
	for _, name := range ledger.MemberNames() {
		if name != "set" && name != "clear" {
			named = append(named, name)
		}
	}
	for _, names := range [][]string{told, named} {
		slices.Sort(names)
		slices.Sort(read)
		if !slices.Equal(read, names) {
			t.Errorf("read are %v, told are %v", read, names)
		}
	}
}

// The txid of a hold may begin with zeros. A batch with too many operations is refused, however
// short it is.
func TestEdgesOfABatch(t *testing.T) {
	zero := `{"op":"release","hold":"tx_` + strings.Repeat("0", 25) + `1"}`
	if b, err := readBatch([]byte(`{"mode":"atomic","ops":[` + zero + `]}`)); err != nil || len(b.Ops) != 1 {
		t.Errorf("%v %v", b, err)
	}
	var size *BatchSizeError
	if _, err := readBatch([]byte(batchOf("atomic", maxBatchOps))); err != nil {
		t.Error(err)
	}
	b, err := readBatch(
		[]byte(
			`{"mode":"atomic","ops":[` + strings.Repeat(
				zero+",",
				maxBatchOps+1,
			) + strings.Repeat("{},", 10_000) + `{}]}`,
		),
	)
	if !errors.As(err, &size) || len(b.Ops) != maxBatchOps+1 {
		t.Errorf("%d operations, %v", len(b.Ops), err)
	}
}

// A batch decodes to the same operations in both encodings, or is refused with the same error.
func TestBothEncodingsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := map[string]any{
			"mode": rapid.SampledFrom([]string{"atomic", "independent", "x"}).Draw(t, "mode"),
			"ops":  rapid.SliceOfN(rapid.Custom(drawOrder), 0, 3).Draw(t, "ops"),
		}
		text, err := json.Marshal(doc, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		enc, err := cbor.EncOptions{Sort: cbor.SortBytewiseLexical}.EncMode()
		if err != nil {
			t.Fatal(err)
		}
		bin, err := enc.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		a, errA := readBatch(text)
		b, errB := readCBOR(bin)
		if (errA == nil) != (errB == nil) || errA == nil && !sameBatch(a, b) {
			t.Fatalf("%s: %+v %v, as CBOR %+v %v", text, a, errA, b, errB)
		}
	})
}

func sameBatch(a, b batch) bool {
	return a.Mode == b.Mode && reflect.DeepEqual(a.Ops, b.Ops)
}

// sound fails the test if o breaks a rule that the decoder enforces.
func sound(t *testing.T, o ledger.Op) {
	t.Helper()
	if must, _ := ledger.Takes(o.Code); must == 0 {
		t.Fatalf("op %s", o.Code)
	} else if must&ledger.MemberAmount != 0 && (o.Amount.IsZero() || engines.CheckAsset(o.Asset) != nil) {
		t.Fatalf("%+v", o)
	}
	for _, account := range []string{o.From, o.To} {
		if account != "" && engines.CheckAccount(account) != nil {
			t.Fatalf("account %q", account)
		}
	}
	if o.From != "" && o.From == o.To || len(o.Memo) > record.MaxMemo || o.ExpiresIn < 0 ||
		o.ExpiresIn > maxExpiresIn*1e9 {
		t.Fatalf("%+v", o)
	}
}

// refusedWell fails the test for an error of an undeclared type.
func refusedWell(t *testing.T, err error) {
	t.Helper()
	var body *httpapi.BodyError
	var size *BatchSizeError
	if err != nil && !errors.As(err, &body) && !errors.As(err, &size) {
		t.Fatalf("%T %v", err, err)
	}
}

// Every decoded body is a valid operation and valid JSON.
func FuzzOrderJSON(f *testing.F) {
	for _, s := range []string{someTransfer, batchOf("atomic", 2), `{"mode":"atomic","ops":[{"op":"release","hold":"` + txid + `"}]}`, `{"from":null}`, "{", `{"a":{}}`, ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := readOrder(body, record.OpTransfer)
		refusedWell(t, err)
		b, errB := readBatch(body)
		refusedWell(t, errB)
		var v map[string]any
		if (err == nil || errB == nil) && json.Unmarshal(body, &v) != nil {
			t.Fatalf("taken: %q", body)
		}
		if err == nil {
			sound(t, o)
		}
		if errB == nil {
			for _, o := range b.Ops {
				sound(t, o)
			}
		}
	})
}

// A batch is decoded to the same operations by the decoder of the plain form, or refused with the
// same problem, as by the general one.
func FuzzBatchPlain(f *testing.F) {
	op := `{"op":"transfer","from":"alice","to":"bob","asset":"ron","amount_minor":"12",`
	for _, s := range []string{
		batchOf("atomic", 2), batchOf("independent", 1) + " ", `{"ops":[],"mode":"atomic"}`,
		`{"mode":"atomic","ops":[{"op":"release","hold":"` + txid + `"}]}`,
		`{ "ops" : [` + op + `"memo":"é","nonce":18446744073709551615} , ` + op + `"valid_until":"2030-01-01T00:00:00Z"}],"mode":"atomic"}`,
		`{"mode":"atomic","ops":[` + op + `"nonce":01}]}`, `{"mode":"atomic","ops":[` + op + `"nonce":18446744073709551616}]}`,
		`{"mode":"atomic","ops":[` + op + `"memo":"\u0041"}]}`, `{"mode":"atomic","ops":[` + op + `"memo":"\xff"}]}`,
		`{"mode":"atomic","ops":[` + op + `"to":"eve"}]}`, `{"mode":"atomic","mode":"atomic","ops":[` + op + `"nonce":1}]}`,
		`{"mode":"atomic","ops":[{"op":"hold","from":"a","to":"b","asset":"ron","amount_minor":"1","expires_in_s":60,"reference":"r"}]}`,
		`{"mode":"atomic","ops":[{"op":"hold","expires_in_s":1e3}]}`, `{"mode":"atomic","ops":[null]}`, `{"mode":"atomic","ops":[{}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, ok := readPlain(body)
		again, err := readAny(body)
		if ok && (err != nil || !sameBatch(b, again)) {
			t.Fatalf("%q: %+v, in general %+v, %v", body, b, again, err)
		}
	})
}

// Programs write the plain form: it is not left to the general decoder.
func TestPlainBatch(t *testing.T) {
	for _, body := range []string{
		batchOf("atomic", 3), "{\n \"mode\": \"independent\",\n \"ops\": [" + strings.TrimSpace(`{"op":"release","hold":"`+txid+`"}`) + "]\n}\n",
	} {
		if b, ok := readPlain([]byte(body)); !ok || len(b.Ops) == 0 {
			t.Errorf("%s: %+v", body, b)
		}
	}
}

func FuzzBatchCBOR(f *testing.F) {
	for _, s := range []string{batchOf("atomic", 2), `{"mode":"independent","ops":[{"op":"release","hold":"` + txid + `"}]}`, `{"mode":"x","ops":[]}`} {
		f.Add([]byte(toCBOR(f, s)))
	}
	f.Add([]byte(strings.Replace(toCBOR(f, batchOf("atomic", 1)), "\x65nonce\x01", "\x65nonce\xee", 1))) // a simple value
	f.Add([]byte("\xbf\xff"))
	f.Add([]byte("\xa1\x63ops\x9b\xff\xff\xff\xff\xff\xff\xff\xff"))
	strict, err := cbor.DecOptions{
		DupMapKey:   cbor.DupMapKeyEnforcedAPF,
		IndefLength: cbor.IndefLengthForbidden,
		TagsMd:      cbor.TagsForbidden,
	}.DecMode()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := readCBOR(body)
		refusedWell(t, err)
		text, slow := httpapi.FromCBOR(body)
		var again batch
		if slow == nil {
			again, slow = readBatch(text)
		}
		if (err == nil) != (slow == nil) || err == nil && !sameBatch(b, again) {
			t.Fatalf("%x: %+v %v, as JSON %+v %v", body, b, err, again, slow)
		}
		if err != nil {
			return
		}
		var doc struct {
			Mode string
			Ops  []map[string]any
		}
		if err := strict.Unmarshal(body, &doc); err != nil || len(doc.Ops) != len(b.Ops) {
			t.Fatalf("taken: %x: %v", body, err)
		}
		for _, o := range b.Ops {
			sound(t, o)
		}
	})
}

// An accepted idempotency key is valid in the ledger, with or without quotes.
func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"a", `"a"`, "", `""`, `"`, "a b", "ü", strings.Repeat("k", 65), `"a\"b"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		key, ok := parseIdemKey(v)
		if !ok {
			return
		}
		if record.CheckIdem(key) != nil || v != key && v != `"`+key+`"` {
			t.Fatalf("%q is taken as %q", v, key)
		}
		if again, ok := parseIdemKey(`"` + key + `"`); !ok || again != key {
			t.Fatalf("%q in quotes: %q", key, again)
		}
	})
}

// BenchmarkOrders measures the decoding of bodies, per operation.
func BenchmarkOrders(b *testing.B) {
	many := batchOf("atomic", 1000)
	packed := []byte(toCBOR(b, many))
	for name, read := range map[string]func() (int, error){
		"transfer": func() (int, error) {
			_, err := readOrder([]byte(someTransfer), record.OpTransfer)
			return 1, err
		},
		"json": func() (int, error) { x, err := readBatch([]byte(many)); return len(x.Ops), err },
		"cbor": func() (int, error) { x, err := readCBOR(packed); return len(x.Ops), err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				ops, err := read()
				if err != nil {
					b.Fatal(err)
				}
				n += ops
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/order")
		})
	}
}
