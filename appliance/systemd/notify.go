package systemd

import (
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify tells the service manager a state such as "READY=1", several separated by newlines. It waits for no answer.
func Notify(state string) error {
	if _, err := daemon.SdNotify(false, state); err != nil {
		return fmt.Errorf("notify the service manager: %w", err)
	}
	return nil
}

// WatchdogInterval is how often the service manager wants to hear "WATCHDOG=1" at least, 0 when it does not. Whoever
// tells it does so at half of that.
func WatchdogInterval() time.Duration {
	d, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return 0 // a manager that cannot say its interval waits for nothing
	}
	return d
}
