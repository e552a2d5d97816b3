package node

import (
	"math"
	"slices"
	"testing"

	nodeapi "ronbox/httpapi/wire/node"
)

// values returns the values of a series; NaN is an unknown one.
func values(all ...float64) (out []*float64) {
	for _, v := range all {
		if math.IsNaN(v) {
			out = append(out, nil)
		} else {
			out = append(out, new(v))
		}
	}
	return out
}

// The chart has a column for two minutes, and shows the greatest value in each.
func TestChart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []*float64
		want   string
	}{
		{"none", nil, ""},
		{"unknown", values(math.NaN()), ""},
		{"zero", values(0), "                             ▁"},
		{"one", values(math.NaN(), 7), "                             █"},
		{"two columns", values(slices.Repeat([]float64{1, 4, 8}, 16)...), "                            ██"},
		{"rising", values(slices.Concat(slices.Repeat([]float64{1}, 24), slices.Repeat([]float64{8}, 24))...),
			"                            ▁█"},
	} {
		if got := chart(tt.values, 5); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestSummary(t *testing.T) {
	low, mean, high := summary(values(2, math.NaN(), 4, 9))
	if *low != 2 || *mean != 5 || *high != 9 {
		t.Errorf("%v %v %v", *low, *mean, *high)
	}
	if low, mean, high = summary(values(math.NaN())); low != nil || mean != nil || high != nil {
		t.Error("figures of nothing")
	}
	for unit, want := range map[string]string{"bytes": "2.0 KiB", "ms": "2048.00 ms", "1/s": "2048.0/s", "1": "2048"} {
		if got := figure(unit, new(2048.0)); got != want {
			t.Errorf("%s: %q, want %q", unit, got, want)
		}
	}
}

func TestSelectSeries(t *testing.T) {
	all := []nodeapi.Series{{Name: "a"}, {Name: "b"}}
	if got, err := selectSeries(all, nil); err != nil || len(got) != 2 {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := selectSeries(all, []string{"b"}); err != nil || len(got) != 1 || got[0].Name != "b" {
		t.Errorf("b: %v, %v", got, err)
	}
	if _, err := selectSeries(all, []string{"c"}); err == nil {
		t.Error("an unknown name is taken")
	}
}
