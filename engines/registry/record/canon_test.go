package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestCanonical(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{}`, `{}`},
		{` [ ] `, `[]`},
		{`{"b":1,"a":[true,false,{"d":"","c":0}]}`, `{"a":[true,false,{"c":0,"d":""}],"b":1}`},
		{`9007199254740991`, `9007199254740991`},
		{`-9007199254740991`, `-9007199254740991`},
		{`"\u0041\/\u00e9"`, `"A/é"`},
		{`"<>&\u2028"`, "\"<>&\u2028\""},
		{`"\u0000\u001F\u0008\u0009\u000a\u000C\u000d\"\\"`, `"\u0000\u001f\b\t\n\f\r\"\\"`},
		{`"\ud83d\ude00"`, `"😀"`},
		{strings.Repeat("[", 16) + strings.Repeat("]", 16), strings.Repeat("[", 16) + strings.Repeat("]", 16)},
		// RFC 8785: the strings of 3.2.2, the member order of 3.2.3, and the published "unicode"
		// and "arrays" vectors.
		{`"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`, `"€$\u000f\nA'B\"\\\\\"/"`},
		{
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face",` +
				`"\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\"," +
				"\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		},
		{`{"Unnormalized Unicode":"A\u030a"}`, "{\"Unnormalized Unicode\":\"A\u030a\"}"},
		{`[56,{"d":true,"10":1,"1":[]}]`, `[56,{"1":[],"10":1,"d":true}]`},
		{
			`{"1":{"f":{"f":"hi","F":5},"\n":56},"10":{},"":"empty","a":{},"111":[{"e":"yes","E":"no"}],"A":{}}`,
			`{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}`,
		},
	} {
		got, err := Canonical([]byte(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for _, tt := range []struct{ in, field, reason string }{
		{``, "", "end of input"},
		{`{"a":`, "a", "end of input"},
		{`{"a":1}{}`, "", "more than one"},
		{`{"a":1} x`, "", "more than one"},
		{`{"a":{"b":1.0}}`, "a.b", "integers"},
		{`{"a":[0,1e3]}`, "a.1", "integers"},
		{`{"a":1E3}`, "a", "integers"},
		{`{"a":-0}`, "a", "-0"},
		{`{"a":01}`, "", ""},
		{`{"a":+1}`, "", ""},
		{`{"a":9007199254740992}`, "a", "2^53-1"},
		{`{"a":9007199254740993}`, "a", "2^53-1"}, // would be rounded to …992
		{`{"a":-9007199254740992}`, "a", "2^53-1"},
		{`{"a":123456789012345678901234567890}`, "a", "2^53-1"},
		{`{"a":null}`, "a", "null"},
		{`null`, "", "null"},
		{`{"a":1,"a":1}`, "a", "duplicate"},
		{`{"a":1,"\u0061":1}`, "a", "duplicate"},
		{`{"a":"` + "\xff" + `"}`, "", "UTF-8"},
		{`{"a":"` + "\xed\xa0\x80" + `"}`, "", "UTF-8"},
		{`{"a":"\ud800"}`, "", ""},
		{`{"a":"\udc00\ud800"}`, "", ""},
		{`{"a":"` + "\x01" + `"}`, "", ""},
		{`{"a":1,}`, "", ""},
		{`[1 2]`, "", ""},
		{`{1:2}`, "", ""},
		{`{a:2}`, "", ""},
		{`'a'`, "", ""},
		{`NaN`, "", ""},
		{`]`, "", ""},
		{`{"items":[{"meta":{"x/y":[null]}}]}`, "items.0.meta.x/y.0", "null"},
		{strings.Repeat("[", 17) + strings.Repeat("]", 17), strings.TrimSuffix(strings.Repeat("0.", 16), "."), "16 levels"},
		{strings.Repeat(`{"a":`, 17) + "1" + strings.Repeat("}", 17), strings.TrimSuffix(strings.Repeat("a.", 16), "."), "16 levels"},
		{strings.Repeat("[", 100_000), strings.TrimSuffix(strings.Repeat("0.", 16), "."), "16 levels"},
	} {
		got, err := Canonical([]byte(tt.in))
		var fe *FieldError
		if !errors.As(err, &fe) || !errors.Is(err, ErrMalformed) || !strings.Contains(fe.Reason, tt.reason) ||
			tt.field != "" && fe.Field != tt.field {
			t.Errorf("%.60s: %.60s, %v, want a fault of %q: %q", tt.in, got, err, tt.field, tt.reason)
		}
	}
}

// Canonical agrees with two other implementations, whatever the spelling, and leaves its own result
// alone.
func TestCanonicalAgreesWithOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genValue(4).Draw(t, "value")
		raw := spell(v, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		got, err := Canonical(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if again, err := Canonical(got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%s became %s: %v", got, again, err)
		}
		theirs := jsontext.Value(bytes.Clone(raw))
		if err := theirs.Canonicalize(); err != nil || !bytes.Equal(theirs, got) {
			t.Fatalf("%s gives %s, jsontext has %s: %v", raw, got, theirs, err)
		}
		if naive := naiveCanonical(t, raw); naive != string(got) {
			t.Fatalf("%s gives %s, the naive way %s", raw, got, naive)
		}
	})
}

// A text that is written is canonical, and comes back as it was.
func TestTextIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genText.Draw(t, "s")
		got := encode(s)
		if canon, err := Canonical(got); err != nil || !bytes.Equal(canon, got) {
			t.Fatalf("%q: %s becomes %s: %v", s, got, canon, err)
		}
		var doc struct {
			A string `json:"a"`
		}
		f := formOf[struct {
			A string `json:"a"`
		}]().read("", fmt.Appendf(nil, `{"a":%s}`, got), &doc)
		if err := f.done(); err != nil || doc.A != s {
			t.Fatalf("%q comes back as %q: %v", s, doc.A, err)
		}
	})
}

// genText draws texts from characters around every edge of the encodings.
var genText = rapid.Custom(func(t *rapid.T) string {
	edges := []rune{
		0, 8, 9, 10, 12, 13, 31, ' ', '"', '/', '\\', 'a', 'b', 127, 0x80, 0xE9, 0x7FF, 0x800, 0x2028, 0xD7FF,
		0xE000, 0xFB33, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF,
	}
	return string(rapid.SliceOfN(rapid.SampledFrom(edges), 0, 5).Draw(t, "runes"))
})

func genValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
		case kind == 0:
			return rapid.Bool().Draw(t, "bool")
		case kind <= 2 || depth == 0:
			return genText.Draw(t, "text")
		case kind == 3:
			return rapid.Int64Range(-(1<<53-1), 1<<53-1).Draw(t, "integer")
		case kind == 4:
			return rapid.SliceOfN(genValue(depth-1), 0, 4).Draw(t, "array")
		}
		return rapid.MapOfN(genText, genValue(depth-1), 0, 5).Draw(t, "object")
	})
}

// spell writes v with members in any order, any space and any escapes.
func spell(v any, r *rand.Rand) []byte {
	space := func() string { return []string{"", "", " ", "\n\t"}[r.IntN(4)] }
	var out strings.Builder
	switch v := v.(type) {
	case string:
		out.WriteByte('"')
		for _, c := range v {
			if c < ' ' || c == '"' || c == '\\' || r.IntN(3) == 0 {
				for _, u := range utf16.Encode([]rune{c}) {
					fmt.Fprintf(&out, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], u)
				}
			} else {
				out.WriteRune(c)
			}
		}
		out.WriteByte('"')
	case []any:
		out.WriteString("[" + space())
		for i, e := range v {
			out.WriteString([]string{"", ","}[min(i, 1)] + space())
			out.Write(spell(e, r))
		}
		out.WriteString(space() + "]")
	case map[string]any:
		out.WriteString("{" + space())
		n := 0
		for k, e := range v { // any order
			out.WriteString([]string{"", ","}[min(n, 1)] + space() + string(spell(k, r)) + space() + ":" + space())
			out.Write(spell(e, r))
			n++
		}
		out.WriteString(space() + "}")
	default:
		fmt.Fprint(&out, v)
	}
	return []byte(out.String())
}

// naiveCanonical decodes with the standard library and writes what RFC 8785 says, the slow way.
func naiveCanonical(t *rapid.T, raw []byte) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return naive(v)
}

func naive(v any) string {
	switch v := v.(type) {
	case string:
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		_ = e.Encode(v)
		quoted := strings.TrimSuffix(out.String(), "\n")
		return strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029").Replace(quoted)
	case []any:
		parts := []string{}
		for _, e := range v {
			parts = append(parts, naive(e))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		keys := []string{}
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys,
			func(a, b string) int { return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))) })
		parts := []string{}
		for _, k := range keys {
			parts = append(parts, naive(k)+":"+naive(v[k]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return fmt.Sprint(v)
}
