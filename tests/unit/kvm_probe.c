/* The probe's verdict agrees with itself and with what can be seen without it. */
#include "vmm/kvm_probe.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

Test(kvm_probe, no_verdict_without_a_ground)
{
	struct kvm_probe probe;
	int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int error = fd < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	kvm_probe(&probe);
	if (error == EACCES || error == EPERM)
		cr_assert_eq(probe.kind, KVM_NO_PERMISSION);
	else if (error)
		cr_assert_eq(probe.kind, KVM_NONE);
	if (error) {
		cr_assert_eq(probe.error_number, error);
		cr_assert_eq(probe.api_version, 0);
	}
	cr_assert_eq(probe.kind == KVM_NATIVE, !*probe.reason);
}

Test(kvm_probe, a_kvm_that_opens_is_tried)
{
	struct kvm_probe probe;

	kvm_probe(&probe);
	if (!probe.api_version)
		cr_skip_test("no usable /dev/kvm here");
	cr_assert_eq(probe.api_version, 12);
	cr_assert_eq(probe.capability_count, KVM_PROBE_CAPABILITIES);
	if (probe.kind == KVM_NONE)
		cr_skip_test("/dev/kvm makes no VM here");
	cr_assert_eq(probe.kind, probe.runs_sse ? KVM_NATIVE : KVM_EMULATED);
	cr_assert_gt(probe.loop_iterations, 0);
	cr_assert_gt(probe.loop_nanoseconds, 0);
	/* The loop ends in time, with one round's grace. */
	cr_assert_lt(probe.loop_nanoseconds, 2000000000u);
	/* Nothing retires more than a hundred instructions in a nanosecond: the guest ran. */
	cr_assert_lt(probe.loop_iterations, probe.loop_nanoseconds * 100);
}

Test(kvm_probe, kinds_have_names)
{
	cr_assert_str_eq(kvm_kind_name(KVM_NATIVE), "native");
	cr_assert_str_eq(kvm_kind_name(KVM_EMULATED), "emulated");
	cr_assert_str_eq(kvm_kind_name(KVM_NO_PERMISSION), "no permission");
	cr_assert_str_eq(kvm_kind_name(KVM_NONE), "none");
}
