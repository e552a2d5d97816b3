package httpapi

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/obs"
	"ronbox/httpapi/wire"
)

func formatUint(v uint64) string { return strconv.FormatUint(v, 10) }

// problemIn reads the problem of an answer.
func problemIn(t testing.TB, body string) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("not a problem: %v: %q", err, body)
	}
	return p
}

// sum adds the series of a counter or gauge that have all the labels.
func sum(t testing.TB, m *obs.Metrics, family string, pairs ...string) float64 {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels strings.Builder
			for _, l := range s.GetLabel() {
				labels.WriteString("|" + l.GetName() + "=" + l.GetValue() + "|")
			}
			hit := true
			for i := 0; i < len(pairs); i += 2 {
				hit = hit && strings.Contains(labels.String(), "|"+pairs[i]+"="+pairs[i+1]+"|")
			}
			if hit {
				total += s.GetCounter().GetValue() + s.GetGauge().GetValue()
			}
		}
	}
	return total
}
