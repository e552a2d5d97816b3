package flow

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := Every(NewCatalog(nil, nil), Spec{Service: "wallet", Name: "metrics_tick"}, time.Second)
		time.Sleep(time.Minute) // nothing ticks before C
		start := time.Now()
		<-tick.C()
		if d := time.Since(start); d != time.Second {
			t.Errorf("first tick after %v", d)
		}
		time.Sleep(10 * time.Second) // misses ten, which merge into one
		<-tick.C()
		if at := <-tick.C(); at.Sub(start) != 12*time.Second {
			t.Errorf("tick at %v", at.Sub(start))
		}
		tick.Stop()
		tick.Stop()
		time.Sleep(time.Minute)
		start = time.Now()
		if at := <-tick.C(); at.Sub(start) != time.Second {
			t.Errorf("first tick of the new period after %v", at.Sub(start))
		}
		tick.Stop()
	})
	c := NewCatalog(nil, nil)
	if text := wantPanic(t, func() { Every(c, Spec{Service: "t", Name: "x"}, 0) }); !strings.Contains(text, "positive period") {
		t.Errorf("panic = %q", text)
	}
}

// A new period counts from the moment it is set; the same one changes nothing, and one that is set while the ticker stands holds later.
func TestTickerChangesItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := Every(NewCatalog(nil, nil), Spec{Service: "registry", Name: "verify_tick"}, time.Hour)
		tick.Set(time.Minute)
		start := time.Now()
		if at := <-tick.C(); at.Sub(start) != time.Minute {
			t.Errorf("first tick after %v", at.Sub(start))
		}
		time.Sleep(30 * time.Second)
		tick.Set(time.Minute)
		if at := <-tick.C(); at.Sub(start) != 2*time.Minute {
			t.Errorf("second tick after %v", at.Sub(start))
		}
		tick.Set(time.Second)
		if at := <-tick.C(); at.Sub(start) != 2*time.Minute+time.Second {
			t.Errorf("third tick after %v", at.Sub(start))
		}
		tick.Stop()
	})
}
