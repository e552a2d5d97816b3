package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// NoDump keeps the memory of the process out of core dumps, and from other processes of its user.
func NoDump() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	return nil
}

// ErrLockLimit says that memory cannot be locked for good: a later allocation beyond the limit would fail and end the process.
var ErrLockLimit = errors.New("the limit of locked memory is not unlimited: set LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited")

// LockMemory keeps every page of the process, those to come included, out of swap once it has been touched.
func LockMemory() error {
	may, err := mayLock()
	if err != nil {
		return err
	}
	if !may {
		return ErrLockLimit
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("mlockall: %w", err)
	}
	return nil
}

// mayLock says whether locked memory has no bound.
func mayLock() (bool, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return false, fmt.Errorf("getrlimit: %w", err)
	}
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("capget: %w", err)
	}
	return l.Cur == unix.RLIM_INFINITY || data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0, nil
}
