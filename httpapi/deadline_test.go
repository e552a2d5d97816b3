package httpapi

import (
	"net/http"
	"testing"
	"time"

	"testing/synctest"
)

func TestDeadlineHeaders(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name, value string
		status      int
	}{
		{"Request-Timeout", "1", 201}, {"Request-Timeout", "0.5", 201}, {"Request-Timeout", "86400", 201},
		{"Request-Timeout", "0", 400}, {"Request-Timeout", "-1", 400}, {"Request-Timeout", "1e3", 400}, {"Request-Timeout", "Inf", 400},
		{"Request-Timeout", "0x1p2", 400}, {"Request-Timeout", "", 400}, {"Request-Timeout", "86401", 400}, {"Request-Timeout", "1 s", 400},
		{"Deadline", "2999-01-01T00:00:00Z", 201}, {"Deadline", "2999-01-01", 400}, {"Deadline", "soon", 400},
	} {
		w := r.do(http.MethodPost, "/registry/commit/"+proposal, "", header{"Authorization": "Bearer good", tt.name: tt.value})
		if w.Code != tt.status {
			t.Errorf("%s: %s: %d, want %d", tt.name, tt.value, w.Code, tt.status)
		}
		if tt.status == 400 && problemIn(t, w.Body.String()).Reason != "bad_header" {
			t.Errorf("%s: %s: %s", tt.name, tt.value, w.Body)
		}
	}
}

func TestHeaderGivenTwiceSaysNothing(t *testing.T) {
	req, _ := http.NewRequest(http.MethodGet, "/", nil)
	req.Header["Request-Timeout"] = []string{"1", "2"}
	if _, _, err := single(req, "Request-Timeout"); err == nil {
		t.Error("two values were taken")
	}
}

// A call waits until the least of the route's budget, Request-Timeout and Deadline, to the millisecond.
func TestDeadlineIsTheLeast(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		h    func(now time.Time) header
		want time.Duration
	}{
		{"the route's", func(time.Time) header { return header{} }, 4 * time.Second},
		{"Request-Timeout", func(time.Time) header { return header{"Request-Timeout": "1.5"} }, 1500 * time.Millisecond},
		{"no more than the route's", func(time.Time) header { return header{"Request-Timeout": "60"} }, 4 * time.Second},
		{"Deadline", func(now time.Time) header {
			return header{"Deadline": now.Add(2 * time.Second).Format(time.RFC3339Nano)}
		}, 2 * time.Second},
		{"both", func(now time.Time) header {
			return header{"Request-Timeout": "1", "Deadline": now.Add(2 * time.Second).Format(time.RFC3339Nano)}
		}, time.Second},
		{"past", func(now time.Time) header { return header{"Deadline": now.Add(-time.Second).Format(time.RFC3339)} }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.reg.wait = true
			h := tt.h(time.Now())
			h["Authorization"] = "Bearer good"
			began := time.Now()
			w := r.do(http.MethodPost, "/registry/commit/"+proposal, "", h)
			if w.Code != http.StatusGatewayTimeout || time.Since(began) != tt.want {
				t.Errorf("%s: %d after %s, want 504 after %s", tt.doc, w.Code, time.Since(began), tt.want)
			}
		})
	}
}
