// Package groups measures groups in virtual time, counted at the store. Beside them, in the
// same run, it measures a lease for each partition: with package leader, and with the
// cadence of two well-known libraries. Its tests make the page groups.
package groups
