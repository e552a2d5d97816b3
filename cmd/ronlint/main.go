package main

import "golang.org/x/tools/go/analysis/unitchecker"

func main() {
	unitchecker.Main(newLockwait(), newDeterminism(), newRawchan(), newWidth(), newDiscard(), newLeftover())
}
