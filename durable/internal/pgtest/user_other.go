//go:build !unix

package pgtest

import "syscall"

func HandOver(string) (*syscall.SysProcAttr, error) { return nil, nil }
