"""The query parameters of the app's addresses. They are an interface, because people share links.

Streamlit keeps the value of a bound widget under its key when another page is opened. Pages therefore share the key of
a widget only where they share its options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BIND: Any = "query-params"  # the binding of widgets whose value is a parameter


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter: its key, the pages that read it (separated by commas), and its meaning in a sentence.

    A ``bound`` parameter is the key and the value of a widget. The code of the session writes the other
    parameters: a link contains a run's id, for example, not its label in a picker.
    """

    key: str
    pages: str
    meaning: str
    bound: bool = False


MAP_PAGES = "Run, Masks, Conflicts, Drift, Image, Compare, Learning"
ADDRESS = [
    # The selection
    Parameter(RUN := "run", "All", "The run in focus, the first in hand; on Compare, run A."),
    Parameter(RUN_B := "run_b", "Compare", "Run B, which is compared with the run in focus."),
    Parameter(RUNS := "runs", "All", "The runs in hand, which some pages show side by side, ids separated by commas."),
    Parameter(PINNED := "pinned", "All", "The pinned runs by the number of their color, ids separated by commas."),
    Parameter(TENSOR := "tensor", "All", "The chosen tensor."),
    Parameter(ACTION_SCOPE := "action_scope", "All", "What is chosen with the tensor, such as its block."),
    Parameter(EXPERT := "expert", "All", "The chosen expert, or the task of which it is the expert."),
    Parameter(CLASS_NAME := "class_name", "All", "The chosen class of images."),
    Parameter(IMAGE := "image", "All", "The chosen image as task:split:number."),
    Parameter(BENCHMARK := "benchmark", "All", "The benchmark, unless it is the server's."),
    # The network map
    Parameter(
        NETWORK_QUANTITY := "network_quantity", MAP_PAGES, "The quantity that the map of the network shows.", True
    ),
    Parameter(
        NETWORK_AREAS := "network_areas",
        MAP_PAGES,
        "Whether areas on the map of the network show numbers of scalars.",
        True,
    ),
    # Masks
    Parameter(RATIO := "ratio", "Masks, Features", "The prune ratio of the masks that are shown.", True),
    Parameter(SHARED_MASK := "shared_mask", "Masks", "Whether all experts share one mask.", True),
    Parameter(TENSOR_ORDER := "tensor_order", "Masks", "The order of the tensors.", True),
    Parameter(GROUPING := "grouping", "Masks", "The groups by which kept shares are split.", True),
    Parameter(TOWER := "tower", "Masks", "The tower of a network that has several, or all.", True),
    Parameter(PAINTING := "painting", "Masks", "Whether the mask is painted by hand.", True),
    Parameter(PAINTED_FACTORS := "painted_factors", "Masks", "The painted factors, as rules in one line."),
    Parameter(TENSOR_BUDGET := "tensor_budget", "Masks", "How many tensors a painted mask may keep at most.", True),
    # Conflicts
    Parameter(CONFLICTS_VIEW := "conflicts_view", "Conflicts", "The chosen view of Conflicts.", True),
    Parameter(DENSITY := "density", "Conflicts", "The share of entries that each expert keeps.", True),
    Parameter(SIGN_METRIC := "sign_metric", "Conflicts", "The quantity that cells of sign agreement show.", True),
    Parameter(ENERGY_METRIC := "energy_metric", "Conflicts", "The quantity that cells of the joint space show.", True),
    Parameter(ELECTION_METRIC := "election_metric", "Conflicts", "The share of entries that the election shows.", True),
    Parameter(RANK_CUT := "rank_cut", "Conflicts", "The rank cut of the joint space.", True),
    Parameter(DIRECTION := "direction", "Conflicts", "How the joint space joins the experts' matrices.", True),
    Parameter(RANKING := "ranking", "Conflicts", "Whether entries are ranked by expert or all together.", True),
    Parameter(RANK_METRIC := "rank_metric", "Conflicts", "The rank that is shown by depth.", True),
    Parameter(MAPPED_MODELS := "mapped_models", "Conflicts", "The models that the map of models shows.", True),
    Parameter(SCOPE := "scope", "Conflicts", "Whether experts are compared in the whole model or in one layer.", True),
    Parameter(FIRST_EXPERT := "first_expert", "Conflicts", "One expert of the chosen pair.", True),
    Parameter(SECOND_EXPERT := "second_expert", "Conflicts", "The other expert of the chosen pair.", True),
    Parameter(TESTED_METHOD := "tested_method", "Conflicts", "The method that is tested against the others.", True),
    Parameter(PAIR_METRIC := "pair_metric", "Conflicts", "The quantity that compares two experts.", True),
    Parameter(JOINT_RATIO := "joint_ratio", "Conflicts", "The prune ratio in the joint space.", True),
    # Partners
    Parameter(PARTNERS_VIEW := "partners_view", "Partners", "The chosen view of Partners.", True),
    Parameter(PARTNERS_CHAIN := "partners_chain", "Partners", "The chain on the experts: a preset, or a run."),
    Parameter(PARTNERS_IMAGES := "partners_images", "Partners", "The images of each data set, or all.", True),
    Parameter(COMPANY := "company", "Partners", "Whether experts meet in pairs or among all.", True),
    Parameter(GAINED_TASK := "gained_task", "Partners", "The task to which experts add, step by step."),
    # Drift
    Parameter(DRIFT_VIEW := "drift_view", "Drift", "The chosen view of Drift.", True),
    Parameter(OTHER_MODEL := "other_model", "Drift", "The model with which a run's features are compared.", True),
    Parameter(COMPARED_IMAGES := "compared_images", "Drift", "The images on which features are compared.", True),
    Parameter(SIMILARITY_METRIC := "similarity", "Drift", "The form of CKA.", True),
    Parameter(DRIFT_METRIC := "drift_metric", "Drift", "The quantity that cells of layer drift show.", True),
    Parameter(TOKEN := "token", "Drift", "The class token, or the mean of all tokens.", True),
    Parameter(DISTANCE := "distance", "Drift", "The distance that measures drift.", True),
    Parameter(TENSOR_KIND := "tensor_kind", "Drift", "The kind of tensors that is shown.", True),
    Parameter(CONFLICT_METRIC := "conflict_metric", "Drift", "The quantity that colors of conflicts show.", True),
    Parameter(SHARED_DIRECTIONS := "shared_directions", "Drift", "How many directions both inputs share.", True),
    Parameter(ENERGY_RATIO := "energy_ratio", "Drift", "The energy of task B's inputs relative to A's.", True),
    Parameter(COSINE := "cosine", "Drift", "The cosine of the two task vectors.", True),
    Parameter(TRAINED_VECTORS := "trained_vectors", "Drift", "Whether task vectors are as after training.", True),
    Parameter(ACTION := "action", "Drift", "The action on the chosen tensor.", True),
    Parameter(ACTION_EXPERT := "action_expert", "Drift", "The expert that gets the tensor back.", True),
    Parameter(FACTOR := "factor", "Drift", "The factor by which the tensor is scaled.", True),
    Parameter(DOMAIN := "domain", "Drift", "The images on which accuracy is measured.", True),
    Parameter(PREDICTION := "prediction", "Drift", "The quantity that the first-order map predicts.", True),
    # Features
    Parameter(FEATURES_VIEW := "features_view", "Features", "The chosen view of Features.", True),
    Parameter(IMAGE_DOMAIN := "image_domain", "Features", "Whether the images are in or out of domain.", True),
    Parameter(SEPARABILITY_METRIC := "separability_metric", "Features", "How separability is measured.", True),
    Parameter(DATA_SET := "data_set", "Features", "The data set whose images are shown.", True),
    Parameter(CLASSES := "classes", "Features", "The classes whose images are shown.", True),
    Parameter(MAP := "map", "Features", "The method that draws maps.", True),
    Parameter(ARROW_COLORS := "arrow_colors", "Features", "What the colors of arrows on the map stand for.", True),
    Parameter(PATH_STEP := "path_step", "Features", "The model on the way to the merged one.", True),
    Parameter(MOVED_IMAGES := "moved_images", "Features", "The images that are listed under the joint map.", True),
    Parameter(PICTURES := "pictures", "Features", "Whether the map shows the images in place of marks.", True),
    Parameter(PERPLEXITY := "perplexity", "Features", "The perplexity of t-SNE maps.", True),
    Parameter(COMPARED_EXPERT := "compared_expert", "Features", "The expert that is compared with the runs.", True),
    Parameter(UNIT_LENGTH := "unit_length", "Features, Compare", "Whether features have unit length.", True),
    # Image
    Parameter(IMAGE_VIEW := "image_view", "Image", "The chosen view of Image.", True),
    Parameter(DEPTH_METRIC := "depth_metric", "Image", "The images that the chart by depth counts.", True),
    Parameter(CELL_METRIC := "cell_metric", "Image", "The quantity that cells of every data set show.", True),
    Parameter(LISTED_DATA_SET := "listed_data_set", "Image", "The data set whose images are listed.", True),
    Parameter(QUESTION := "question", "Image", "The question that the listed images answer.", True),
    Parameter(LABEL_SET := "label_set", "Image", "The data set among whose classes the models choose."),
    Parameter(REFERENCE := "reference", "Image", "The model with which runs are compared."),
    Parameter(ATTENTION := "attention", "Image", "The attention head, or the mean or product of heads, that is shown."),
    Parameter(BLOCK := "block", "Image", "The block whose heads are shown."),
    Parameter(IMAGE_GROUP := "image_group", "Image", "The group of images that is counted by depth.", True),
    Parameter(TOKEN_MODEL := "token_model", "Image", "The model whose tokens are restored.", True),
    Parameter(DEPTH := "depth", "Image", "The depth whose images are listed.", True),
    # Learning
    Parameter(LEARNING_VIEW := "learning_view", "Learning", "The chosen view of Learning.", True),
    Parameter(ROUTED_DATA_SET := "routed_data_set", "Learning", "The data set whose routed images are shown.", True),
    Parameter(LEARNING_STEP := "learning_step", "Learning", "The step of learning.", True),
    # Scores
    Parameter(SCORES_VIEW := "scores_view", "Scores", "The chosen view of Scores.", True),
    Parameter(
        RELATIVE_ACCURACY := "relative_accuracy",
        "Scores, Conflicts",
        "Whether accuracies are relative to the experts'.",
        True,
    ),
    Parameter(COMPARED_SCORE := "compared_score", "Scores", "The score by which runs are distinguished.", True),
    Parameter(CORRUPTED_HALF := "corrupted_half", "Scores", "The half of the images that are corrupted.", True),
    Parameter(CORRUPTED_DOMAIN := "corrupted_domain", "Scores", "The domain of corrupted images.", True),
    Parameter(EXPERT_GROUP := "expert_group", "Scores", "The experts whose merges are shown.", True),
    Parameter(EDIT := "edit", "Scores", "The edit before the merges, as in a chain."),
    Parameter(VARIANT := "variant", "Scores", "The ablation shown with the base and the full method.", True),
    Parameter(INTERVALS := "intervals", "Scores", "Whether accuracies are shown with intervals.", True),
    # Sweeps
    Parameter(SWEEP := "sweep", "Sweeps", 'The sweep, or "new" for the form that starts one.'),
    Parameter(POINT := "point", "Sweeps", "The chosen point of the sweep."),
    Parameter(SCORE := "score", "Sweeps", "The score that the map shows.", True),
    Parameter(CRITERION := "criterion", "Sweeps", "The score by which the best point is chosen.", True),
    Parameter(CONSTRAINT := "constraint", "Sweeps", "The accuracy that limits the choice of a point.", True),
    Parameter(MINIMUM := "minimum", "Sweeps", "The share of it that a point must reach (%).", True),
    # Compare
    Parameter(COMPARE_VIEW := "compare_view", "Compare", "The chosen view of Compare.", True),
    Parameter(COMPARED_DATA_SETS := "compared_data_sets", "Compare", "The data sets whose images are compared.", True),
    Parameter(CHART := "chart", "Compare", "The chart that shows both runs and their difference.", True),
    Parameter(RIGHT_RUNS := "right_runs", "Compare", "Which of the two runs is right about the listed images.", True),
    # Merge, Mix, Methods, Models & runs
    Parameter(CHAIN := "chain", "Merge, Masks", "The edits and the merge of the recipe that is being built."),
    Parameter(EXPERTS := "experts", "Merge", "The experts that are merged, names separated by commas."),
    Parameter(MODELS := "models", "Merge", "The user's set of models."),
    Parameter(STARTED := "started", "Merge", "The runs that were started last, the newest first, separated by commas."),
    Parameter(DESK := "desk", "Mix", "The chain, the factors and the switches of the desk."),
    Parameter(METHOD := "method", "Methods", "The chosen method."),
    Parameter(ROLE := "role", "Methods", "The role of the listed methods.", True),
    Parameter(NEEDS := "needs", "Methods", "The need of the listed methods.", True),
    Parameter(SEARCH := "search", "Methods", "The search words for methods.", True),
    Parameter(WORD := "word", "Methods", "The search words for the glossary.", True),
    Parameter(OTHER_NETWORKS := "other_networks", "Methods", "Whether figures beyond CLIP are shown.", True),
    Parameter(MODELS_VIEW := "models_view", "Models & runs", "The chosen view of Models & runs.", True),
    Parameter(SELECTED_RUNS := "selected_runs", "Models & runs", "The selected runs, ids separated by commas."),
    Parameter(BENCHMARK_SOURCE := "benchmark_source", "Models & runs", "The source of a new benchmark.", True),
    Parameter(EXPERIMENT := "experiment", "Models & runs", "The published experiment."),
    # How a view is shown
    Parameter(PRESENTATION := "presentation", "All", "Whether the page is enlarged for a projector.", True),
    Parameter(FRAME := "frame", "All", "1 where one chart is shown alone, for a frame on another page."),
    Parameter(SINGLE_CHART := "single_chart", "All", "The chart that is shown alone."),
    Parameter(CONTROLS := "controls", "All", "The parameters whose controls stay visible, separated by commas."),
    Parameter(BACKGROUND := "background", "All", '"clear" for a frame without its own background.'),
    # Lessons and reports
    Parameter(LESSON := "lesson", "All", "The lesson that is shown with the page."),
    Parameter(STEP := "step", "All", "The step of the lesson, from 1."),
    Parameter(PROGRESS := "progress", "All", "The steps that are done, as bits."),
    Parameter(ANSWERS := "answers", "All", "The guesses and answers so far."),
    Parameter(CLASS := "class", "All", "The code of the class whose guesses are counted."),
    Parameter(NOTES := "notes", "All", "1 where a second window shows only the notes of the step."),
    Parameter(REPORT_TOKEN := "report_token", "All", "The secret token of the report; copied links leave it out."),
]
KEYS = frozenset(parameter.key for parameter in ADDRESS)
