package engines

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func amounts() *rapid.Generator[Amount] {
	word := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 9, 10, 1<<63 - 1, 1 << 63, 1<<64 - 1}))
	return rapid.Custom(func(t *rapid.T) Amount { return Amount{word.Draw(t, "hi"), word.Draw(t, "lo")} })
}

func units(n uint64) Amount { return Amount{lo: n} }

func (a Amount) big() *big.Int {
	n := new(big.Int).Lsh(new(big.Int).SetUint64(a.hi), 64)
	return n.Or(n, new(big.Int).SetUint64(a.lo))
}

// Sums, comparisons and texts agree with math/big.
func TestAmountAgainstBig(t *testing.T) {
	limit := new(big.Int).Lsh(big.NewInt(1), 128)
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts().Draw(t, "a"), amounts().Draw(t, "b")
		if a.String() != a.big().String() {
			t.Fatalf("%s, want %s", a, a.big())
		}
		if back, err := ParseAmount(a.String()); err != nil || back != a {
			t.Fatalf("%s parsed as %s, %v", a, back, err)
		}
		if a.Less(b) != (a.big().Cmp(b.big()) < 0) {
			t.Fatalf("%s < %s is %v", a, b, a.Less(b))
		}
		want := new(big.Int).Add(a.big(), b.big())
		sum, ok := a.Add(b)
		if ok != (want.Cmp(limit) < 0) || ok && sum.big().Cmp(want) != 0 {
			t.Fatalf("%s + %s = %s, %v", a, b, sum, ok)
		}
	})
}

func TestParseAmount(t *testing.T) {
	most := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1)).String()
	for text, want := range map[string]bool{
		"0": true, "1": true, "18446744073709551615": true, "18446744073709551616": true, "100000000000000000000": true, most: true,
		"": false, "00": false, "01": false, "+5": false, "-1": false, "0x10": false, "1.0": false, "1e3": false, "12abc": false, " 1": false,
		"1 ": false, "1_000": false, "٣": false, "340282366920938463463374607431768211456": false, strings.Repeat("9", 39): false,
		"1" + strings.Repeat("0", 39): false,
	} {
		a, err := ParseAmount(text)
		if want != (err == nil) || !want && !errors.Is(err, ErrAmount) {
			t.Errorf("%q: %s, %v", text, a, err)
		}
		if want && a.String() != text {
			t.Errorf("%q reads as %s", text, a)
		}
	}
}

// A decimal is read as the amount that it shows, with all its zeros or without those at the end.
func TestDecimalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, d := amounts().Draw(t, "a"), rapid.IntRange(0, MaxDecimals).Draw(t, "decimals")
		text := a.Decimal(d)
		if back, err := ParseDecimal(text, d); err != nil || back != a {
			t.Fatalf("%s with %d decimals is %s, and reads as %s, %v", a, d, text, back, err)
		}
		if whole, part, point := strings.Cut(text, "."); point != (d > 0) || len(part) != d || whole+part == "" {
			t.Fatalf("%s with %d decimals is %s", a, d, text)
		}
		if d > 0 {
			text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
		}
		if back, err := ParseDecimal(text, d); err != nil || back != a {
			t.Fatalf("%s reads as %s, %v, want %s", text, back, err, a)
		}
	})
}

func TestParseDecimal(t *testing.T) {
	const most = "340282366920938463463374607431768211455"
	for _, tt := range []struct {
		text     string
		decimals int
		minor    string
		err      error
	}{
		{"12", 2, "1200", nil}, {"12.0", 2, "1200", nil}, {"12.00", 2, "1200", nil}, {"0.01", 2, "1", nil},
		{"0", 2, "0", nil}, {"0.0", 2, "0", nil}, {"12", 0, "12", nil}, {"0.000000000000000001", 18, "1", nil},
		{"340282366920938463463.374607431768211455", 18, most, nil}, {most, 0, most, nil},
		{"12.001", 2, "", ErrPrecision}, {"12.000", 2, "", ErrPrecision}, {"12.0", 0, "", ErrPrecision},
		{"340282366920938463463.374607431768211456", 18, "", ErrLarge}, {most, 1, "", ErrLarge},
		{strings.Repeat("9", 1000), 2, "", ErrLarge}, {"340282366920938463463374607431768211456", 0, "", ErrLarge},
		{"", 2, "", ErrDecimal}, {".", 2, "", ErrDecimal}, {"5.", 2, "", ErrDecimal}, {".5", 2, "", ErrDecimal},
		{"1.2.3", 2, "", ErrDecimal}, {"-1.5", 2, "", ErrDecimal}, {"+1", 2, "", ErrDecimal}, {"1e5", 2, "", ErrDecimal},
		{"1,5", 2, "", ErrDecimal}, {"1,200.00", 2, "", ErrDecimal}, {"1_000", 2, "", ErrDecimal}, {"1 000", 2, "", ErrDecimal},
		{" 1", 2, "", ErrDecimal}, {"1\n", 2, "", ErrDecimal}, {"0x1", 2, "", ErrDecimal}, {"٣", 2, "", ErrDecimal},
		{"00", 2, "", ErrDecimal}, {"012", 2, "", ErrDecimal}, {"00.10", 2, "", ErrDecimal}, {"-0", 2, "", ErrDecimal},
	} {
		a, err := ParseDecimal(tt.text, tt.decimals)
		if !errors.Is(err, tt.err) || err == nil && a.String() != tt.minor {
			t.Errorf("%q with %d decimals: %s, %v, want %q, %v", tt.text, tt.decimals, a, err, tt.minor, tt.err)
		}
	}
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0", "340282366920938463463374607431768211455", "340282366920938463463374607431768211456", "+1", "0001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAmount(s)
		if err == nil && a.String() != s {
			t.Errorf("%q reads as %s", s, a)
		}
		if n, ok := new(big.Int).SetString(s, 10); err != nil && ok && n.String() == s && n.Sign() >= 0 &&
			n.BitLen() <= 128 {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// Differences and orders agree with math/big, and bytes and text round-trip.
func TestAmountDifferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts().Draw(t, "a"), amounts().Draw(t, "b")
		diff, ok := a.Sub(b)
		if ok == a.Less(b) || ok && diff.big().Cmp(new(big.Int).Sub(a.big(), b.big())) != 0 || !ok && !diff.IsZero() {
			t.Fatalf("%s - %s = %s, %v", a, b, diff, ok)
		}
		if a.Cmp(b) != a.big().Cmp(b.big()) || a.IsZero() != (a.big().Sign() == 0) {
			t.Fatalf("%s against %s is %d", a, b, a.Cmp(b))
		}
		if raw := a.AppendLE([]byte{9}); len(raw) != 1+AmountSize || AmountLE(raw[1:]) != a ||
			AmountOf(a.Parts()) != a {
			t.Fatalf("%s as bytes is %x", a, raw)
		}
		text, err := a.MarshalText()
		var back Amount
		if err != nil || string(text) != a.String() || back.UnmarshalText(text) != nil || back != a {
			t.Fatalf("%s as text is %s", a, text)
		}
	})
	var a Amount
	if err := a.UnmarshalText([]byte("1.5")); !errors.Is(err, ErrAmount) {
		t.Errorf("1.5 was taken: %v", err)
	}
	if raw := units(0x0102).AppendLE(nil); raw[0] != 2 || raw[1] != 1 {
		t.Errorf("the least significant byte does not come first: %x", raw)
	}
}
