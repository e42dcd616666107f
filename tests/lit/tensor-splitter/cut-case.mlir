// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB 2>&1 | filecheck %s

// Which branch runs is the same for all rows: both are cut along them. One of them reads a mask in slices.

// CHECK: stablehlo.while({{.*}}) : tensor<i32>, tensor<256xf32>
// CHECK: "stablehlo.case"(%arg2)
// CHECK: stablehlo.exponential %{{.*}} : tensor<32x200xf32>
// CHECK: }) : (tensor<i32>) -> tensor<32x200xf32>
// CHECK-NOT: not split

func.func @main(%a: tensor<256x200xf32>, %v: tensor<200xf32>, %which: tensor<i32>, %scale: tensor<256xf32>) -> tensor<256xf32> {
  %c = stablehlo.cosine %a : tensor<256x200xf32>
  %b = "stablehlo.case"(%which) ({
    %0 = stablehlo.exponential %c : tensor<256x200xf32>
    stablehlo.return %0 : tensor<256x200xf32>
  }, {
    %1 = stablehlo.broadcast_in_dim %scale, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
    %2 = stablehlo.multiply %c, %1 : tensor<256x200xf32>
    stablehlo.return %2 : tensor<256x200xf32>
  }) : (tensor<i32>) -> tensor<256x200xf32>
  %2 = stablehlo.dot_general %b, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %2 : tensor<256xf32>
}
