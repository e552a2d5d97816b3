package obs

import (
	"fmt"
	"maps"
	"sync"
	"testing"
)

// However many values there were, so many have a series, and all that was counted is in one.
func TestNewestIsBounded(t *testing.T) {
	m := NewMetrics()
	m.Declare(Family{Name: "by_epoch_total", Type: Counter, Labels: []string{"epoch"}, Help: "Test."})
	n := m.Newest(&sync.Mutex{}, 3, "by_epoch_total", "s", "epoch")
	for round := range 2 {
		for i := range 5 {
			n.Add(fmt.Sprint("e", i))
			n.Add(fmt.Sprint("e", i))
		}
		got := map[string]float64{}
		for _, s := range parse(t, scrape(t, m))["by_epoch_total"].GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "epoch" {
					got[l.GetValue()] = s.GetCounter().GetValue()
				}
			}
		}
		if want := map[string]float64{
			"e2":  2,
			"e3":  2,
			"e4":  2,
			Older: []float64{4, 14}[round],
		}; !maps.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
	var none *Metrics
	none.Newest(&sync.Mutex{}, 3, "by_epoch_total", "s", "epoch").Add("e")
}
