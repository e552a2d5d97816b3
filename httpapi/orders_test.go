package httpapi_test

import (
	"strings"
	"testing"

	"ronbox/httpapi"
)

// change is one member of a body, put in another way.
type change struct{ member, to, field string }

// wrongMembers are all the ways in which one member of someTransfer or its like can be wrong.
func wrongMembers() []change {
	long := strings.Repeat("a", 257)
	var out []change
	for member, values := range map[string][]string{
		"amount_minor": {`5`, `""`, `"0"`, `"00"`, `"05"`, `"-5"`, `"+5"`, `"5.0"`, `"5e3"`, `" 5"`, `"0x5"`, `"five"`, `null`, `true`, `["5"]`, `{"a":1}`,
			`"340282366920938463463374607431768211456"`, `"1000000000000000000000000000000000000000"`},
		"nonce": {`0`, `-1`, `1.0`, `1e3`, `"1"`, `18446744073709551616`, `null`, `true`, `[1]`},
		"from":  {`""`, `"a b"`, `"` + long + `"`, `"ä"`, `7`, `null`, `"a.b"`, `"a\u0000"`},
		"to":    {`""`, `"a b"`, `"` + long + `"`, `7`, `null`, `"alice"`},
		"asset": {`""`, `"RON"`, `"r-n"`, `"abcdefghijklmnopq"`, `7`, `null`},
		"memo":  {`7`, `null`, `"` + strings.Repeat("m", 129) + `"`, `"` + strings.Repeat("ü", 65) + `"`},
		"valid_until": {`""`, `"2100-01-01T00:00:00,5Z"`, `"2100-01-01T1:00:00Z"`, `"2100-01-01T00:00:00+24:00"`, `"tomorrow"`, `1893456000`, `null`, `"2100-01-01"`, `"2100-01-01T00:00:00"`, `"2100-13-01T00:00:00Z"`, `"0001-01-01T00:00:00Z"`,
			`"9999-01-01T00:00:00Z"`},
	} {
		for _, v := range values {
			out = append(out, change{member, v, member})
		}
	}
	return out
}

// A wrong member is named, in a body of its own and within a batch, and nothing reaches the wallet.
func TestWrongMembersAreNamed(t *testing.T) {
	good := map[string]string{
		"from":         `"alice"`,
		"to":           `"bob"`,
		"asset":        `"ron"`,
		"amount_minor": `"5"`,
		"nonce":        "1",
		"memo":         `"lunch"`,
		"valid_until":  `"2100-01-01T00:00:00Z"`,
	}
	r := newRig(t)
	for _, c := range wrongMembers() {
		r.named(t, "/v1/transfer", bodyWith(good, c.member, c.to), c.field, c.to)
		r.named(
			t,
			"/v1/batch",
			`{"mode":"atomic","ops":[{"op":"transfer",`+someTransfer[1:]+`,{"op":"transfer",`+bodyWith(good, c.member, c.to)[1:]+`]}`,
			"ops.1."+c.field,
			c.to,
		)
	}
	for member := range good {
		if member != "nonce" && member != "memo" && member != "valid_until" {
			r.named(t, "/v1/transfer", bodyWith(good, member, ""), member, "absent")
		}
	}
	hold := map[string]string{
		"from":         `"a"`,
		"to":           `"b"`,
		"asset":        `"ron"`,
		"amount_minor": `"5"`,
		"nonce":        "1",
		"expires_in_s": "1",
	}
	for _, v := range []string{"0", "2592001", "-1", `"60"`, "1.5", "null", "18446744073709551616", ""} {
		r.named(t, "/v1/hold", bodyWith(hold, "expires_in_s", v), "expires_in_s", v)
	}
	for _, v := range []string{`""`, `"` + someULID + `"`, `"` + strings.ToLower(txid) + `"`, "7", "null", `"` + txid + `A"`, `"tx_81ARZ3NDEKTSV4RRFFQ69G5FAV"`, ""} {
		r.named(t, "/v1/release", bodyWith(map[string]string{"hold": v}, "", ""), "hold", v)
		r.named(t, "/v1/capture", bodyWith(map[string]string{"hold": v, "amount_minor": `"5"`}, "", ""), "hold", v)
	}
	if r.wal.calls != 0 {
		t.Errorf("%d calls of the wallet", r.wal.calls)
	}
}

// bodyWith is members with one changed, or left out for "".
func bodyWith(members map[string]string, name, to string) string {
	var out []string
	for _, n := range []string{"from", "to", "asset", "amount_minor", "nonce", "expires_in_s", "hold", "memo", "valid_until", "op"} {
		v, there := members[n]
		if n == name {
			v, there = to, to != ""
		}
		if there && v != "" {
			out = append(out, `"`+n+`":`+v)
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

// named wants a 400 that names the field, in details and words, and repeats no value.
func (r *rig) named(t *testing.T, path, body, field, doc string) {
	t.Helper()
	w := r.do("POST", path, body, writer)
	p := problemIn(t, w.Body.String())
	if w.Code != 400 || p.Retryable || p.Details["field"] != field ||
		!strings.HasPrefix(p.Detail, field+": ") {
		t.Errorf("%s, %s: %d %+v, want 400 for %s", path, doc, w.Code, p, field)
	}
}

// Members that are no one's, another operation's, given twice, or not there; and bodies that are no
// bodies.
func TestShapesOfBodies(t *testing.T) {
	r := newRig(t)
	rel := `{"op":"release","hold":"` + txid + `"}`
	for _, tt := range []struct{ path, body, field string }{
		{"transfer", `{"from":"a","expires_in_s":1}`, "expires_in_s"}, {"transfer", `{"op":"transfer"}`, "op"}, {"transfer", `{"hold":"` + txid + `"}`, "hold"},
		{"transfer", `{"amount":"5"}`, "amount"}, {"transfer", `{"From":"a"}`, "From"}, {"burn", `{"to":"a"}`, "to"}, {"issue", `{"from":"a"}`, "from"},
		{"release", `{"hold":"` + txid + `","amount_minor":"5"}`, "amount_minor"}, {"release", `{"hold":"` + txid + `","nonce":1}`, "nonce"},
		{"transfer", `{"from":"a","from":"a"}`, "from"}, {"transfer", `{"nonce":1,"nonce":2}`, "nonce"}, {"transfer", `{"fr\u006fm":"a","from":"a"}`, "from"},
		{"batch", `{"mode":"atomic","mode":"atomic","ops":[]}`, "mode"}, {"batch", `{"mode":"atomic","ops":[],"ops":[]}`, "ops"},
		{"batch", `{"mode":"atomic","ops":[]}`, "ops"}, {"batch", `{"mode":"atomic"}`, "ops"}, {"batch", `{"ops":[` + rel + `]}`, "mode"},
		{"batch", `{"mode":"all","ops":[]}`, "mode"}, {"batch", `{"mode":1}`, "mode"}, {"batch", `{"mode":"atomic","ops":{}}`, "ops"},
		{"batch", `{"mode":"atomic","ops":[1]}`, "ops.0"}, {"batch", `{"mode":"atomic","ops":[` + rel + `,null]}`, "ops.1"},
		{"batch", `{"mode":"atomic","ops":[{"hold":"` + txid + `"}]}`, "ops.0.op"}, {"batch", `{"mode":"atomic","ops":[{"op":"open"}]}`, "ops.0.op"},
		{"batch", `{"mode":"atomic","ops":[{"op":"flags"}]}`, "ops.0.op"}, {"batch", `{"mode":"atomic","ops":[{"op":"release"}]}`, "ops.0.hold"},
		{"batch", `{"mode":"atomic","ops":[{"to":"a","op":"burn"}]}`, "ops.0.to"}, {"batch", `{"mode":"atomic","ops":[{"x":1}]}`, "ops.0.x"},
		{"batch", `{"mode":"atomic","ops":[` + rel + `,{"op":"release","hold":"` + txid + `","hold":"` + txid + `"}]}`, "ops.1.hold"},
		{"batch", `{"mode":"atomic","ops":[` + rel + `],"key":"x"}`, "key"},
		{"transfer", "", ""}, {"transfer", " ", ""}, {"transfer", "[]", ""}, {"transfer", "7", ""}, {"transfer", "null", ""}, {"transfer", "{", ""},
		{"transfer", someTransfer + "x", ""}, {"transfer", someTransfer + "{}", ""}, {"transfer", `{"from":"a"`, ""}, {"transfer", "\xff", ""},
		{"transfer", someTransfer + "\v", ""}, {"transfer", someTransfer + "\u00a0", ""}, {"transfer", someTransfer + " \n\f", ""}, {"transfer", "\v", ""},
		{"transfer", `{"memo":"` + "\xff" + `"}`, "memo"}, {"accounts/flags", `{"account":"a b","set":["frozen"]}`, "account"},
		{"accounts/flags", `{"account":"a"}`, "set"}, {"accounts/flags", `{"account":"a","set":["x"]}`, "set.0"},
		{"accounts/flags", `{"account":"a","set":["frozen"],"clear":["no_debit","no"]}`, "clear.1"}, {"accounts/flags", `{"account":"a","set":[""]}`, "set.0"},
		{"accounts/flags", `{"account":"a","set":["frozen"],"clear":["frozen"]}`, "clear"}, {"accounts/flags", `{"account":"a","set":"frozen"}`, "set"},
		{"assets", `{"asset":"RON"}`, "asset"}, {"assets", `{}`, "asset"}, {"assets", `{"asset":"ron","x":1}`, "x"},
	} {
		w := r.do("POST", "/v1/"+tt.path, tt.body,
			header{"Authorization": "Bearer good", "Content-Type": httpapi.TypeJSON})
		p := problemIn(t, w.Body.String())
		field, _ := p.Details["field"].(string)
		if w.Code != 400 || p.Reason != httpapi.ReasonSchema || field != tt.field ||
			p.Detail == "" {
			t.Errorf("%s %s: %d %+v, want 400 for %q", tt.path, tt.body, w.Code, p, tt.field)
		}
	}
	if r.wal.calls != 0 {
		t.Errorf("%d calls of the wallet", r.wal.calls)
	}
}

// A batch in CBOR with a wrong member is refused by its name, and malformed CBOR by its offset.
func TestShapesOfCBOR(t *testing.T) {
	r := newRig(t)
	rel := "\xa2\x62op\x67release\x64hold\x78\x1d" + txid
	for _, tt := range []struct{ doc, body, field string }{
		{"nothing", "", ""}, {"a list", "\x80", ""}, {"a number", "\x07", ""}, {"null", "\xf6", ""}, {"cut short", "\xa2\x64mode", ""},
		{"a map of endless length", "\xbf\xff", ""}, {"a list of endless length", "\xa1\x63ops\x9f\xff", ""},
		{"text of endless length", "\xa1\x64mode\x7f\x66atomic\xff", ""}, {"a tag", "\xc0\xa0", ""}, {"a tagged member", "\xa1\x64mode\xc0\x66atomic", ""},
		{"a length that is none", "\xbc", ""}, {"a length cut short", "\xb9\x00", ""}, {"bytes for text", "\xa1\x64mode\x46atomic", ""},
		{"a name that is a number", "\xa1\x01\x01", ""}, {"a stranger", "\xa1\x61x\x01", "x"}, {"twice", "\xa2\x64mode\x66atomic\x64mode\x66atomic", "mode"},
		{"text that is longer than the body", "\xa1\x64mode\x7a\xff\xff\xff\xff", ""}, {"more operations than bytes", "\xa1\x63ops\x9b\xff\xff\xff\xff\xff\xff\xff\xff", ""},
		{"more members than bytes", "\xbb\xff\xff\xff\xff\xff\xff\xff\xff", ""}, {"something behind it", "\xa2\x64mode\x66atomic\x63ops\x81" + rel + "\x00", ""},
		{"text that is no UTF-8", "\xa1\x64mode\x61\xff", ""}, {"a negative nonce", "\xa1\x63ops\x81\xa1\x65nonce\x20", "ops.0.nonce"},
		{"a nonce in text", "\xa1\x63ops\x81\xa1\x65nonce\x611", "ops.0.nonce"}, {"a float", "\xa1\x63ops\x81\xa1\x65nonce\xf9\x3c\x00", ""},
		{"an amount that is a number", "\xa1\x63ops\x81\xa1\x6camount_minor\x05", "ops.0.amount_minor"},
		{"a member twice", "\xa1\x63ops\x81\xa2\x65nonce\x01\x65nonce\x01", "ops.0.nonce"}, {"no operations", "\xa2\x64mode\x66atomic\x63ops\x80", "ops"},
	} {
		w := r.do("POST", "/v1/batch", tt.body,
			header{"Authorization": "Bearer good", "Content-Type": httpapi.TypeCBOR})
		p := problemIn(t, w.Body.String())
		field, _ := p.Details["field"].(string)
		if w.Code != 400 || p.Reason != httpapi.ReasonSchema || field != tt.field {
			t.Errorf("%s: %d %+v, want 400 for %q", tt.doc, w.Code, p, tt.field)
		}
	}
	if w := r.do("POST", "/v1/batch", "\xa2\x64mode\x66atomic\x63ops\x81"+rel,
		header{"Authorization": "Bearer good", "Content-Type": httpapi.TypeCBOR}); w.Code != 200 {
		t.Errorf("a good one: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/v1/batch", "\xb9\x00\x02\x78\x04mode\x78\x06atomic\x63ops\x98\x01"+rel,
		header{"Authorization": "Bearer good", "Content-Type": httpapi.TypeCBOR}); w.Code != 200 {
		t.Errorf("one with longer lengths than need be: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/v1/transfer", toCBOR(t, someTransfer),
		header{"Authorization": "Bearer good", "Content-Type": httpapi.TypeCBOR}); w.Code != 415 {
		t.Errorf("CBOR to a route that takes none: %d", w.Code)
	}
}
