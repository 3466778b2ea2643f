// Package process reads what the operating system counts for this process.
package process
