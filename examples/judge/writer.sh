#!/bin/sh
# What is measured: reads a customer's message, and prints a reply, which differs from trial to trial.
set -eu
case $((DELTA_SEED % 2)) in
0) opening="I am sorry." ;;
*) opening="Thank you." ;;
esac
case $(cat) in
*parcel*) echo "$opening It arrives on Monday." ;;
*broken*) echo "$opening A new one is on its way." ;;
*) echo "$opening The money is on its way." ;;
esac
