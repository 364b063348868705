"""Requests that prod pods will not use, by the worked examples of spec/slo-controller.md 11.4."""

from shared.domain.cpu_memory import MILLI, Amount
from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.kube.pod import Pod
from shared.kube.quantity import NANO
from shared.prediction.peak_predictor import ClassPeaks, PodPeaks, predict
from shared.prediction.usage_models import CLASSES, Model, Models, PodUsed, PredictionSettings, Used, item_key
from tests.support.pods import kept_pod

NOW = instant_ns("2026-05-10T00:00:00Z")
GI = 1 << 30
ALLOCATABLE = Amount(32 * NANO, 64 * GI * NANO)
SETTINGS = PredictionSettings()


def pod(uid: str, cpu: str, memory: str = "0", *, age_h: int = 48, gone: bool = False) -> Pod:
    return kept_pod(
        uid, labels={"koordinator.sh/priority-class": "koord-prod"}, requests={"cpu": cpu, "memory": memory},
        created=instant_text(NOW - age_h * 3600 * SECOND), deleted=instant_text(NOW) if gone else None, phase="Running",
    )  # fmt: skip


def model(cores: float, memory: float) -> Model:
    found = Model(SETTINGS)
    found.cpu.add(cores, 1.0, NOW)
    found.memory.add(memory, 1.0, NOW)
    return found


PODS = {"pr1": model(2.0, 2.0 * GI), "pr2": model(1.0, 1.0 * GI), "pr3": model(0.0, 0.0)}


def outcome(*pods: Pod, settings: PredictionSettings = SETTINGS) -> tuple[Amount, Amount]:
    peaks = PodPeaks(PODS.get, settings, NOW)
    for each in pods:
        peaks.add(each)
    found = peaks.outcome(ALLOCATABLE)
    assert found.reclaimable is not None
    assert found.peak is not None
    return found.reclaimable, found.peak


def amount(cpu_milli: int, memory: int) -> Amount:
    return Amount(cpu_milli * MILLI, memory * NANO)


PR1, PR2, PR4 = pod("pr1", "8", "16Gi"), pod("pr2", "1", "1Gi"), pod("pr4", "2", "4Gi", age_h=23)


def test_pod_by_pod() -> None:
    assert outcome(PR1) == (amount(5_799, 14_801_086_257), amount(2_201, 2_378_782_927)), "PR1"
    assert outcome(PR2) == (amount(0, 0), amount(1_138, 1_207_345_060)), "PR2"
    assert outcome(pod("pr3", "500m")) == (amount(473, 0), amount(27, 5_767_168)), "PR3"
    assert outcome(PR4) == (amount(0, 0), amount(2_000, 4 * GI)), "PR4"
    assert outcome(pod("pr1", "8", gone=True)) == (amount(0, 0), amount(0, 0)), "PR5"
    bare = SETTINGS._replace(safety_margin_percent=0)
    assert outcome(PR2, settings=bare)[1].cpu == 1_035 * MILLI, "PR6"
    assert outcome(PR1, PR2, PR4) == (amount(5_799, 14_801_086_257), amount(5_339, 7_881_095_283))


CLASS_MODELS = {
    "__node-sys__": model(0.5, 1.0 * GI), "__node-koord-prod__": model(4.0, 8.0 * GI), "__node-__": model(0.0, 0.0),
}  # fmt: skip


def by_class(*pods: Pod, allocatable: Amount = ALLOCATABLE, margin: int = 10) -> Amount | None:
    peaks = ClassPeaks(CLASS_MODELS.get, SETTINGS._replace(safety_margin_percent=margin))
    for each in pods:
        peaks.add(each)
    return peaks.outcome(allocatable).reclaimable


def test_class_by_class() -> None:
    assert by_class(PR1, PR2, PR4) == amount(5_741, 11_673_512_299), "PP1"
    assert by_class(pod("a", "3")) == amount(0, 0), "PP2"
    little = by_class(PR1, PR2, PR4, allocatable=amount(6_000, 64 * GI))
    assert little is not None
    assert little.cpu == 741 * MILLI, "PP3"
    bare = by_class(PR1, PR2, PR4, margin=0)
    assert bare is not None
    assert bare.cpu == 6_219 * MILLI, "PP4"


def test_both_take_the_smaller_reclaimable_and_the_larger_peak() -> None:
    models = PODS | CLASS_MODELS
    found = predict((PR1, PR2, PR4), ALLOCATABLE, models.get, SETTINGS, NOW)
    assert found.both.reclaimable == amount(5_741, 11_673_512_299)
    assert found.both.peak == amount(5_339, 10_875_066_005)


def test_pp5_without_a_model_of_a_class_there_is_no_prediction() -> None:
    models = PODS | {key: value for key, value in CLASS_MODELS.items() if key != "__node-__"}
    assert predict((PR1,), ALLOCATABLE, models.get, SETTINGS, NOW).both.reclaimable is None


def test_training_adds_samples_to_pods_classes_the_node_and_the_rest() -> None:
    models = Models(SETTINGS)
    models.train(
        [PodUsed("a", "koord-prod", Used(1.0, GI)), PodUsed("b", "", Used(None, GI))], Used(4.0, 4.0 * GI), NOW
    )
    assert sorted(models.by_key) == sorted(["a", "__node__", *map(item_key, (*CLASSES, "sys"))])
    shown = models.predictions("__node-sys__")
    assert shown is not None
    assert shown["p95"].cpu_milli == model(3.0, 3.0 * GI).predict(0.95).cpu_milli


def test_idle_models_expire_and_checkpoints_are_due_in_turn() -> None:
    models = Models(SETTINGS)
    models.train([PodUsed(f"pod-{n}", "", Used(1.0, 1.0)) for n in range(20)], Used(4.0, 4.0), NOW)
    first = models.due_checkpoints(NOW)
    second = models.due_checkpoints(NOW + 60 * SECOND)
    assert (len(first), len(second)) == (12, 12)
    assert not {each.uid for each in first} & {each.uid for each in second}
    assert models.forget_idle(NOW + SETTINGS.expiration_ns) == []
    assert len(models.forget_idle(NOW + SETTINGS.expiration_ns + 1)) == 27
